/*
 * attributes.cpp: SQS and SNS refuse a message for one wrong attribute, and an event that is refused when it is
 * enqueued tells its writer; a dead letter comes too late.
 */
#include "attributes.h"

#include <algorithm>
#include <string>

#include "delivery/base/clean_text.h"
#include "delivery/base/text.h"
#include "delivery/options/options.h"

namespace outbox::aws_sink {
namespace {

constexpr size_t most_attributes = 10, longest_name = 256;

bool is_name_char(char c) {
  return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '-' || c == '_' ||
         c == '.';
}

bool is_name(std::string_view name) {
  return !name.empty() && name.size() <= longest_name && std::all_of(name.begin(), name.end(), is_name_char) &&
         name.front() != '.' && name.back() != '.' && name.find("..") == name.npos &&
         !begins_ignoring_case(name, "aws.") && !begins_ignoring_case(name, "amazon.");
}

/* Characters of XML 1.0: U+FFFE and U+FFFF, and control characters but tab and ends of lines, are none. The text is
 * valid UTF-8. */
bool is_text(std::string_view text) {
  for (size_t i = 0; i < text.size(); i++) {
    auto byte = static_cast<unsigned char>(text[i]);
    if (byte < 0x20 ? byte != '\t' && byte != '\n' && byte != '\r'
                    : byte == 0xEF && (text.substr(i, 3) == "\xEF\xBF\xBE" || text.substr(i, 3) == "\xEF\xBF\xBF"))
      return false;
  }
  return true;
}

}  // namespace

void check_attribute_name(std::string_view name) {
  if (!is_name(name))
    throw BadInput(OB_BAD_VALUE, "headers", "header " + shown_name(name) + " cannot be an attribute of a message",
                   "A name has 1 to 256 letters, digits, - _ and single dots within it, and does not begin with AWS. "
                   "or Amazon.",
                   "Give the header another name.");
}

void check_attribute(std::string_view name, std::string_view value, bool binary) {
  check_attribute_name(name);
  if (value.empty())
    throw BadInput(OB_BAD_VALUE, "headers", "header " + shown_name(name) + " is empty",
                   "An attribute of a message has a value.", "Leave the header out.");
  if (!binary && !is_text(value))
    throw BadInput(OB_BAD_VALUE, "headers", "value of header " + shown_name(name) + " cannot be sent to AWS",
                   "It has control characters, or U+FFFE or U+FFFF.",
                   "Encode the value, or move it into the payload.");
}

void check_attributes(size_t number) {
  if (number > most_attributes)
    throw BadInput(OB_BAD_VALUE, "headers", "event has too many headers for a message",
                   "They would make " + std::to_string(number) +
                       " attributes with those of the sink's format, and at "
                       "most 10 are allowed.",
                   "Move some of them into the payload, or use format 'cloudevents-structured'.");
}

void check_body(std::string_view text) {
  if (!is_text(text))
    throw BadInput(OB_BAD_VALUE, "payload", "payload cannot be sent to AWS",
                   "It has control characters, or U+FFFE or U+FFFF.", "Write them as \\u escapes.");
}

}  // namespace outbox::aws_sink
