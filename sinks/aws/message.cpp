/*
 * message.cpp: one function makes the message for submitting, for the check at enqueue time (which leaves the payload
 * out, and looks at its text alone) and for previews. SQS and SNS take text and at most ten attributes; EventBridge
 * takes a JSON object, and no attributes.
 */
#include "message.h"

#include <openssl/sha.h>

#include <algorithm>

#include "attributes.h"
#include "delivery/base/base64.h"
#include "delivery/base/clean_text.h"
#include "delivery/base/text_view.h"
#include "delivery/base/uuid.h"
#include "delivery/engine/delivery_identity.h"
#include "delivery/formats/cloudevents.h"
#include "delivery/formats/json_text.h"
#include "delivery/identity/aws_signature.h"
#include "delivery/options/headers.h"

namespace outbox::aws_sink {
namespace {

constexpr size_t longest_group = 128, longest_detail_type = 128, longest_source = 256, longest_subject = 99;
constexpr size_t bytes_of_time = 14; /* as EventBridge counts it */
constexpr const char *default_source = "outbox.${aggregate_type}";

[[noreturn]] void too_long(OptionName option, const std::string &value, size_t most) {
  throw BadInput(OB_BAD_VALUE, option,
                 "option \"" + std::string(option) + "\" makes a text too long for the event's target",
                 "It would have " + std::to_string(value.size()) + " characters, and at most " +
                     std::to_string(most) + " are allowed.",
                 "Change the option, or what the event has for it.");
}

std::string rendered(const Template &from, OptionName option, const ob_event &event, size_t most) {
  std::string text;
  if (std::string missing = from.missing(event, true); !missing.empty() || !from.render(event, text) || text.empty())
    throw_no_value(option, missing);
  if (text.size() > most)
    too_long(option, text, most);
  return text;
}

Template parse_template(const std::string &name, const std::string &value, size_t most) {
  Template made = Template::parse(name, value);
  if (value.empty() || made.literals().size() > most)
    throw_bad_value(name, value, "Expected 1 to " + std::to_string(most) + " characters.");
  return made;
}

/* SNS sends it as the subject of e-mails. */
bool is_subject(std::string_view text) {
  return !text.empty() && text[0] != ' ' &&
         std::all_of(text.begin(), text.end(), [](unsigned char c) { return c >= 0x20 && c < 0x7f; });
}

/* Source and detail type of EventBridge. */
void check_no_control(OptionName option, std::string_view text) {
  if (std::any_of(text.begin(), text.end(), [](unsigned char c) { return c < 0x20; }))
    throw BadInput(OB_BAD_VALUE, option,
                   "option \"" + std::string(option) + "\" makes a text with control characters", {},
                   "Change the option, or what the event has for it.");
}

void check_detail(std::string_view detail) {
  const size_t begin = detail.find_first_not_of(" \t\r\n");
  if (begin == detail.npos || detail[begin] != '{')
    throw BadInput(OB_BAD_VALUE, "payload", "the detail of an event of EventBridge must be a JSON object",
                   "The format writes another value.",
                   "Give the event a payload that is an object, or use format 'cloudevents-structured'.");
}

}  // namespace

Template parse_detail_type(const std::string &name, const std::string &value) {
  return parse_template(name, value, longest_detail_type);
}

Template parse_source(const std::string &name, const std::string &value) {
  Template made = parse_template(name, value, longest_source);
  if (value.starts_with("aws."))
    throw_bad_value(name, value, "Sources that begin with aws. are those of AWS itself.");
  return made;
}

Template parse_subject(const std::string &name, const std::string &value) {
  Template made = parse_template(name, value, longest_subject);
  if (!is_subject("x" + made.literals()))
    throw_bad_value(name, value, "Expected ASCII without control characters.");
  return made;
}

std::string group_of(std::string_view key) {
  auto is_taken = [](unsigned char c) { return c > 0x20 && c < 0x7f; };
  if (key.size() <= longest_group && std::all_of(key.begin(), key.end(), is_taken))
    return std::string(key);
  unsigned char hash[SHA256_DIGEST_LENGTH];
  SHA256(reinterpret_cast<const unsigned char *>(key.data()), key.size(), hash);
  std::string group = "sha256-";
  for (unsigned char byte : hash)
    for (int digit : {byte >> 4, byte & 15})
      group += "0123456789abcdef"[digit];
  return group;
}

MessageMaker::MessageMaker(const AwsOptions &options)
    : RecordMaker(options, true), options_(options), service_(options.target.service),
      source_(options.source_given ? *options.source_given : Template::parse(SOURCE, default_source)) {}

void MessageMaker::add(const char *name, std::string_view value, Entry &entry) const {
  std::string &field = entry.fields.emplace_back();
  if (service_ == Service::Sns) {
    (field += name) += '=';
    aws::append_uri_encoded(value, field);
  } else {
    ((field += '"') += name) += "\":";
    append_json_string(value, field);
  }
}

// ---- SQS and SNS ----

std::vector<MessageMaker::Attribute> MessageMaker::attributes(const Record &record) const {
  std::vector<Attribute> made;
  for (const ob_header &header : record.headers) {
    if (!header.value.data)
      continue; /* a column without a value */
    made.push_back({view(header.name), view(header.value), header.binary});
    check_attribute(made.back().name, made.back().value, header.binary);
  }
  check_attributes(made.size());
  return made;
}

void MessageMaker::add_attributes(const std::vector<Attribute> &attributes, Entry &entry) const {
  std::string json;
  size_t number = 0;
  for (const Attribute &attribute : attributes) {
    const std::string_view type = attribute.binary ? "Binary" : "String";
    entry.size += attribute.name.size() + type.size() + attribute.value.size();
    std::string encoded;
    if (attribute.binary)
      append_base64(attribute.value, encoded);
    const std::string_view value = attribute.binary ? std::string_view(encoded) : attribute.value;
    if (service_ == Service::Sns) {
      const std::string prefix = "MessageAttributes.entry." + std::to_string(++number) + ".";
      add((prefix + "Name").c_str(), attribute.name, entry);
      add((prefix + "Value.DataType").c_str(), type, entry);
      add((prefix + "Value." + std::string(type) + "Value").c_str(), value, entry);
      continue;
    }
    json += json.empty() ? "\"MessageAttributes\":{" : ",";
    append_json_string(attribute.name, json);
    json.append(":{\"DataType\":\"").append(type).append("\",\"").append(type).append("Value\":");
    append_json_string(value, json);
    json += '}';
  }
  if (!json.empty())
    entry.fields.push_back(json + '}');
}

void MessageMaker::make_message(const ob_event &event, const Record &record, Entry &entry) const {
  const std::string_view body = view(record.value);
  check_body(body);
  add(service_ == Service::Sqs ? "MessageBody" : "Message", body, entry);
  entry.size = body.size();
  add_attributes(attributes(record), entry);
  if (options_.subject) {
    const std::string subject = rendered(*options_.subject, SUBJECT, event, longest_subject);
    if (!is_subject(subject))
      throw BadInput(OB_BAD_VALUE, SUBJECT, "event has no text that SNS takes as a subject",
                     "A subject is ASCII without control characters, and begins with no blank.",
                     "Change option \"subject\" of the sink, or what the event has for it.");
    add("Subject", subject, entry);
    entry.size += subject.size();
  }
  const std::string_view key = view(event.key), id(record.id_text, sizeof record.id_text);
  if (options_.target.fifo ||
      (service_ == Service::Sqs && !key.empty())) /* the group makes standard queues fair queues */
    add("MessageGroupId", key.empty() ? std::string(id) : group_of(key), entry);
  if (options_.target.fifo)
    add("MessageDeduplicationId", DeliveryIdentity(event).text(), entry);
}

// ---- EventBridge ----

void MessageMaker::make_bus_event(const ob_event &event, const Record &record, bool with_payload,
                                  Entry &entry) const {
  const std::string source = rendered(source_, SOURCE, event, longest_source),
                    detail_type = rendered(options_.detail_type, DETAIL_TYPE, event, longest_detail_type);
  check_no_control(SOURCE, source);
  check_no_control(DETAIL_TYPE, detail_type);
  if (source.starts_with("aws."))
    throw BadInput(OB_BAD_VALUE, SOURCE, "source of the event begins with aws.",
                   "Such sources are those of AWS itself.",
                   "Write other text before the variable in option \"source\".");
  const std::string_view detail = view(record.value);
  if (with_payload)
    check_detail(detail);
  const std::string resource = "urn:uuid:" + std::string(record.id_text, sizeof record.id_text);
  add("Source", source, entry);
  add("DetailType", detail_type, entry);
  add("Detail", detail, entry);
  entry.fields.push_back("\"Resources\":[\"" + resource + "\"]");
  entry.size = source.size() + detail_type.size() + detail.size() + resource.size();
  if (event.created_at_us >= 0) {
    entry.fields.push_back("\"Time\":" + std::to_string(event.created_at_us / 1'000'000));
    entry.size += bytes_of_time;
  }
  add("EventBusName", options_.target.id, entry);
}

// ---- both ----

void MessageMaker::make(const ob_event &event, bool with_payload, Entry &entry) const {
  static thread_local Record &record = *new Record; /* never destroyed, so no destructor runs at exit */
  record.begin();
  record.value = {};
  uuid_text(event.id, record.id_text);
  format_->write(event, record);
  if (!record.value.data)
    throw BadInput(OB_BAD_VALUE, "payload", "payload is NULL, and AWS takes no empty messages", {},
                   "Give the event a payload, such as {}.");
  entry.fields.clear();
  if (service_ == Service::EventBridge)
    make_bus_event(event, record, with_payload, entry);
  else
    make_message(event, record, entry);
}

Entry MessageMaker::make(const ob_event &event) const {
  Entry entry;
  make(event, true, entry);
  return entry;
}

size_t MessageMaker::check(const ob_event &event) const {
  check_headers(event);
  format_->check(event);
  if (event.payload_is_bytes && options_.format != Format::Structured)
    throw BadInput(OB_BAD_VALUE, "payload_bytes", "AWS takes no raw bytes as a message", "A message is text.",
                   "Use format 'cloudevents-structured', which writes them as base64, or encode them yourself.");
  const bool reads = format_->reads_payload(event);
  if (event.payload.data && !event.payload_is_bytes) {
    if (service_ != Service::EventBridge)
      check_body(view(event.payload));
    else if (!reads)
      check_detail(view(event.payload));
  }
  ob_event without = event;
  constexpr std::string_view some = "{}";
  if (event.payload.data)
    without.payload = as_text(some);
  Entry entry;
  make(without, false, entry);
  if (!event.payload.data)
    return entry.size;
  const size_t payload = !reads                   ? event.payload.len
                         : format_->shrinks() > 0 ? event.payload.len / format_->shrinks()
                                                  : 0;
  return entry.size - std::min(entry.size, some.size()) + payload;
}

}  // namespace outbox::aws_sink
