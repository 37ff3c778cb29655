/*
 * subject.cpp: NATS sends a subject as it is, so a blank in it would be read as the end of the subject. Subjects that
 * begin with $ are the server's own: an event type must not become a request that deletes a stream.
 */
#include "subject.h"

#include <algorithm>

#include "delivery/options/options.h"

namespace outbox::nats {
namespace {

bool is_control_or_blank(char c) {
  auto byte = static_cast<unsigned char>(c);
  return byte <= 0x20 || byte == 0x7F;
}

/* Wherever in a subject they stand. */
std::string characters_problem(std::string_view text) {
  if (std::any_of(text.begin(), text.end(), is_control_or_blank))
    return "A subject has no blanks and no control characters.";
  if (text.find_first_of("*>") != text.npos)
    return "* and > are wildcards of subscriptions.";
  return {};
}

}  // namespace

std::string subject_problem(std::string_view subject) {
  if (subject.empty())
    return "It is empty.";
  if (subject.size() > longest_subject)
    return "It has " + std::to_string(subject.size()) + " bytes, and at most " + std::to_string(longest_subject) +
           " are allowed.";
  if (std::string problem = characters_problem(subject); !problem.empty())
    return problem;
  if (subject.starts_with('.') || subject.ends_with('.') || subject.find("..") != subject.npos)
    return "There is nothing before, between or after its dots.";
  if (subject.starts_with('$') || subject.starts_with("_INBOX."))
    return "Subjects that begin with $ or _INBOX. are those of the server and its clients.";
  return {};
}

Template parse_subject(const std::string &name, const std::string &value) {
  Template subject = Template::parse(name, value);
  if (Field field; Field::find(value, field))
    throw_bad_value(name, value, "All messages would have this very text as their subject.",
                    "For what the event has there, write ${" + value + "}.");
  std::string problem = characters_problem(subject.literals());
  if (problem.empty()) {
    std::string sample = subject.glob();
    std::replace(sample.begin(), sample.end(), '*', 'x');
    problem = subject_problem(sample);
  }
  if (!problem.empty())
    throw_bad_value(name, value, problem, "Example: 'orders.${event_type}'.");
  return subject;
}

}  // namespace outbox::nats
