/*
 * nats_message.cpp: one function makes the message for submitting, for the check at enqueue time (which has no
 * payload, only its length) and for previews.
 */
#include "nats_message.h"

#include <algorithm>

#include "delivery/base/clean_text.h"
#include "delivery/base/text.h"
#include "delivery/base/text_view.h"
#include "delivery/engine/delivery_identity.h"
#include "delivery/options/headers.h"
#include "protocol.h"
#include "subject.h"

namespace outbox::nats {
namespace {

constexpr std::string_view record_prefix = "ce_", attribute_prefix = "ce-", content_type = "content-type";

/* Why NATS cannot carry a header of this name, as a sentence; empty if it can. */
std::string name_problem(std::string_view name, bool cloud_events) {
  if (std::any_of(name.begin(), name.end(), [](char c) { return c <= 0x20 || c >= 0x7F || c == ':'; }))
    return "Names of headers are printable ASCII without blanks and colons.";
  if (begins_ignoring_case(name, "nats-"))
    return "JetStream takes headers that begin with Nats- as instructions.";
  if (cloud_events && begins_ignoring_case(name, attribute_prefix))
    return "Headers that begin with ce- are attributes of the CloudEvent, which the sink writes.";
  return {};
}

/* As the HTTP binding of CloudEvents says, which the one of NATS refers to. */
void append_attribute_value(std::string_view text, std::string &out) {
  for (char c : text) {
    if (c > 0x20 && c < 0x7F && c != '"' && c != '%')
      out += c;
    else
      append_percent_encoded(c, out);
  }
}

void check_value(std::string_view name, const ob_header &header) {
  std::string_view value = view(header.value);
  if (header.binary)
    throw BadInput(OB_BAD_VALUE, "headers", "header " + shown_name(name) + " cannot be sent to NATS",
                   "It has bytes, and headers of NATS are text.", "Give it as text, such as base64.");
  if (trim(value).size() != value.size())
    throw BadInput(OB_BAD_VALUE, "headers", "header " + shown_name(name) + " cannot be sent to NATS",
                   "Its value begins or ends with a blank, which clients of NATS remove.",
                   "Leave the blank out, or move the value into the payload.");
}

}  // namespace

void check_placements(const std::vector<Placement> &placements, bool cloud_events) {
  for (const Placement &placement : placements) {
    if (placement.place != Place::Header)
      continue;
    if (std::string problem = name_problem(placement.alias, cloud_events); !problem.empty())
      throw BadInput(OB_BAD_VALUE, ADDITIONAL_PLACEMENT, shown_name(placement.alias) + " cannot be a header", problem,
                     "Give the column another alias: column:header:alias.");
  }
}

MessageMaker::MessageMaker(const NatsOptions &options)
    : RecordMaker(options, options.sends_empty_payload()), options_(options) {}

/* The record's headers. In the NATS binding of CloudEvents the header content-type says that a message is structured,
 * so the type of the data is an attribute like the others. */
void MessageMaker::add_headers(Content &content) const {
  for (const ob_header &header : content.record.headers) {
    std::string_view name = view(header.name);
    if (!header.value.data)
      continue;
    if (is_cloud_event() && (name.starts_with(record_prefix) || name == content_type)) {
      std::string &attribute = content.record.text(), &value = content.record.text();
      (attribute = attribute_prefix) +=
          name == content_type ? std::string_view("datacontenttype") : name.substr(record_prefix.size());
      append_attribute_value(view(header.value), value);
      append_header(attribute, value, content.headers);
      continue;
    }
    if (std::string problem = name_problem(name, is_cloud_event()); !problem.empty())
      throw BadInput(OB_BAD_VALUE, "headers", "header " + shown_name(name) + " cannot be sent to NATS", problem,
                     "Give the header another name.");
    check_value(name, header);
    append_header(name, view(header.value), content.headers);
  }
}

void MessageMaker::make(const ob_event &event, Content &content) const {
  Record &record = content.record;
  record.begin();
  if (!options_.subject.render(event, content.subject))
    throw_no_value(SUBJECT, options_.subject.missing(event));
  if (std::string problem = subject_problem(content.subject); !problem.empty())
    throw BadInput(OB_BAD_VALUE, SUBJECT, shown_name(content.subject) + " is no subject for an event", problem,
                   "Change option \"subject\" of the sink, or what the event has for it.");
  format_->write(event, record);
  content.headers = header_block_begin;
  append_header("Nats-Msg-Id", DeliveryIdentity(event).text(), content.headers);
  if (!options_.stream.empty())
    append_header("Nats-Expected-Stream", options_.stream, content.headers);
  add_headers(content);
  content.headers += header_block_end;
  content.body = record.value;
}

Message MessageMaker::message(const ob_event &event, const Content &content) const {
  const bool is_first_try = event.attempt == 1 && !event.failed;
  Message message{QueuedEvent(event),
                  content.subject,
                  {},
                  content.headers.size(),
                  is_first_try ? event.created_at_us : INT64_MIN};
  message.data.reserve(content.size());
  (message.data = content.headers) += view(content.body);
  return message;
}

size_t MessageMaker::check(const ob_event &event) const {
  static thread_local Content &made = *new Content; /* never destroyed, so no destructor runs at exit */

  return least_size(event, [&](const ob_event &without) {
    make(without, made);
    if (made.headers.size() > longest_headers)
      throw BadInput(OB_TOO_LARGE, "headers", "headers of the event are too large for NATS",
                     "With those of the sink they have " + std::to_string(made.headers.size()) +
                         " bytes, and JetStream stores at most " + std::to_string(longest_headers) + ".",
                     "Move them into the payload.");
    return made.size();
  });
}

std::string MessageMaker::subject_filter() const {
  std::string glob = options_.subject.glob();
  size_t variable = glob.find('*');
  if (variable == glob.npos)
    return glob;
  size_t dot = variable == 0 ? glob.npos : glob.rfind('.', variable);
  return (dot == glob.npos ? std::string() : glob.substr(0, dot + 1)) + ">";
}

Preview preview_of(const Content &content) {
  Preview parts;
  parts.push_back({"subject", {}, content.subject, {}});
  std::string_view block = content.headers;
  block.remove_prefix(header_block_begin.size());
  block.remove_suffix(header_block_end.size());
  while (!block.empty()) {
    std::string_view line = block.substr(0, block.find("\r\n"));
    size_t colon = line.find(": ");
    parts.push_back({"header", std::string(line.substr(0, colon)), std::string(line.substr(colon + 2)), {}});
    block.remove_prefix(line.size() + 2);
  }
  parts.push_back({"body", {}, std::string(view(content.body)), {}});
  return parts;
}

}  // namespace outbox::nats
