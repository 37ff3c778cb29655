/*
 * cloudevents.cpp: makes binary and structured mode. The HTTP binding percent-encodes header values; the Kafka
 * binding uses plain UTF-8.
 */
#include "delivery/formats/cloudevents.h"

#include <algorithm>
#include <cctype>
#include <charconv>

#include "delivery/base/base64.h"
#include "delivery/base/text.h"
#include "delivery/base/text_view.h"
#include "delivery/base/time_text.h"
#include "delivery/base/uuid.h"
#include "delivery/formats/json_text.h"
#include "delivery/options/options.h"

namespace outbox {
namespace {

constexpr std::string_view prefix = "ce_";
constexpr std::string_view set_here[] = {"specversion", "id",          "source",          "type",
                                         "subject",     "time",        "datacontenttype", "partitionkey",
                                         "sequence",    "traceparent", "tracestate",      "data"};

bool is_hex(std::string_view text) {
  return std::all_of(text.begin(), text.end(),
                     [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); });
}
bool is_zero(std::string_view text) {
  return text.find_first_not_of('0') == text.npos;
}

/* W3C Trace Context: 00-<32 hex>-<16 hex>-<2 hex>; later versions may be longer. */
bool is_traceparent(std::string_view text) {
  if (text.size() < 55 || text[2] != '-' || text[35] != '-' || text[52] != '-')
    return false;
  std::string_view version = text.substr(0, 2), trace = text.substr(3, 32), parent = text.substr(36, 16);
  if (text.size() > 55 && (version == "00" || text[55] != '-'))
    return false;
  return is_hex(version) && version != "ff" && is_hex(trace) && !is_zero(trace) && is_hex(parent) &&
         !is_zero(parent) && is_hex(text.substr(53, 2));
}

/* Fixed width, so that lexical order is numeric order. */
std::string_view sequence_text(const ob_event &event, std::string &out) {
  int64_t number = event.has_seq ? event.seq : event.position;
  if (number < 0)
    return {};
  char digits[24];
  size_t length = static_cast<size_t>(std::to_chars(digits, std::end(digits), number).ptr - digits);
  out.append(19 - length, '0').append(digits, length);
  return out;
}

/* Whether the text has control characters, which the specification forbids in a String. */
bool has_control(std::string_view text) {
  for (size_t i = 0; i < text.size(); i++) {
    auto byte = static_cast<unsigned char>(text[i]);
    if (byte < 0x20 || byte == 0x7f ||
        (byte == 0xc2 && i + 1 < text.size() && static_cast<unsigned char>(text[i + 1]) < 0xa0))
      return true;
  }
  return false;
}

void check_string(const char *column, const char *attribute, const ob_text &text) {
  if (has_control(view(text)))
    throw BadInput(OB_BAD_VALUE, column, std::string(column) + " contains a control character",
                   "It is the attribute \"" + std::string(attribute) + "\" of a CloudEvent, which must have none.",
                   "Remove the character, or put the text into the payload.");
}

void check_extension(const ob_header &header) {
  std::string_view name = view(header.name).substr(prefix.size()), begin = view(header.name).substr(0, prefix.size());
  auto legal = [](char c) { return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9'); };
  std::string quoted = "header \"" + std::string(view(header.name)) + "\"";
  if (name.empty() || !std::all_of(name.begin(), name.end(), legal))
    throw BadInput(OB_BAD_VALUE, "headers", quoted + " is no legal CloudEvents attribute",
                   "After \"" + std::string(begin) +
                       "\" the name of an attribute has lower-case letters and digits only.",
                   "Correct the name, or leave out \"" + std::string(begin) + "\" to send a plain header.");
  if (std::find(std::begin(set_here), std::end(set_here), name) != std::end(set_here))
    throw BadInput(OB_BAD_VALUE, "headers", quoted + " is set by the sink",
                   "The attribute \"" + std::string(name) + "\" is made from the event's columns.",
                   "Leave the header out.");
  if (header.binary || has_control(view(header.value)))
    throw BadInput(OB_BAD_VALUE, "headers", quoted + " is not text",
                   "An attribute of a CloudEvent has no bytes and no control characters.",
                   "Leave out \"" + std::string(begin) + "\" to send a plain header.");
}

/* In HTTP ce_tenant and ce-tenant are the same attribute, so giving both is ambiguous. */
void check_given_once(std::vector<std::string_view> names) {
  auto attribute = [](std::string_view name) { return name.substr(prefix.size()); };
  std::sort(names.begin(), names.end(), [&](auto one, auto other) {
    return std::pair(attribute(one), one) < std::pair(attribute(other), other);
  });
  auto twice = std::adjacent_find(names.begin(), names.end(),
                                  [&](auto one, auto other) { return attribute(one) == attribute(other); });
  if (twice != names.end())
    throw BadInput(OB_BAD_VALUE, "headers",
                   "headers \"" + std::string(twice[0]) + "\" and \"" + std::string(twice[1]) +
                       "\" are one attribute of a CloudEvent",
                   "Its name is what follows the first three characters.", "Leave one of them out.");
}

[[noreturn]] void throw_no_source(const std::string &variable) {
  throw BadInput(OB_BAD_VALUE, SOURCE, "event has no value for " + variable,
                 "Option \"source\" of the sink needs one: a CloudEvent must say where it comes from.");
}

/* As the HTTP binding requires: printable ASCII without blanks, quotes and percent signs. */
void append_header_value(std::string_view text, std::string &out) {
  for (char c : text) {
    if (c > 0x20 && c < 0x7f && c != '"' && c != '%')
      out += c;
    else
      append_percent_encoded(c, out);
  }
}

std::vector<std::string> reserved_names() {
  std::vector<std::string> names = {"content-type"};
  for (std::string_view name : set_here)
    names.push_back(std::string(prefix) + std::string(name));
  return names;
}

}  // namespace

CloudEvents::CloudEvents(Mode mode, Template source, const std::vector<Placement> &placements, Binding binding)
    : mode_(mode), binding_(binding), source_(std::move(source)), headers_(placements, reserved_names()) {
  for (const Placement &placement : placements)
    if (placement.place == Place::Header && placement.alias.starts_with(prefix))
      check_extension({as_text(placement.alias), as_text({}), false});
}

Template CloudEvents::default_source() {
  return Template::parse(SOURCE, "/outbox/${database}/${aggregate_type}");
}

Template CloudEvents::parse_source(const std::string &name, const std::string &value) {
  constexpr std::string_view marks = "-._~:/?#[]@!$&'()*+,;=%";
  auto legal = [&](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || marks.find(c) != marks.npos;
  };
  Template parsed = Template::parse(name, value);
  std::string literals = parsed.literals();
  if (value.empty() || !percent_encoding_ends(literals) || !std::all_of(literals.begin(), literals.end(), legal))
    throw_bad_value(name, value, "Expected a URI reference, such as /outbox/${database}/${aggregate_type}.");
  return parsed;
}

/* HTTP header names are case-insensitive. */
bool CloudEvents::is_attribute(std::string_view header) const {
  if (binding_ == Binding::Kafka)
    return header.starts_with(prefix);
  return header.size() >= prefix.size() && (header[0] | 0x20) == 'c' && (header[1] | 0x20) == 'e' &&
         (header[2] == '_' || header[2] == '-');
}

bool CloudEvents::reads_payload(const ob_event &event) const {
  return mode_ == Mode::Structured && event.payload.data != nullptr;
}

void CloudEvents::check(const ob_event &event) const {
  check_string("event_type", "type", event.event_type);
  check_string("aggregate_id", "subject", event.aggregate_id);
  check_string("partition_key", "partitionkey", event.key);
  std::vector<std::string_view> names;
  for (const ob_header &header : headers_of(event)) {
    if (!is_attribute(view(header.name)))
      continue;
    check_extension(header);
    names.push_back(view(header.name));
  }
  if (names.size() > 1)
    check_given_once(std::move(names));
}

/* Calls add(name with prefix, value) for each attribute of the event except datacontenttype. Empty values are left
 * out: the specification does not allow them. */
template <class Add> void CloudEvents::attributes(const ob_event &event, Record &record, Add add) const {
  auto add_text = [&](std::string_view name, std::string_view value) {
    if (!value.empty())
      add(name, as_text(value));
  };
  uuid_text(event.id, record.id_text);
  add_text("ce_specversion", "1.0");
  add_text("ce_id", {record.id_text, sizeof record.id_text});
  std::string &source = record.text();
  if (!source_.render_uri(event, source) || source.empty())
    throw_no_source(source_.missing(event));
  add_text("ce_source", source);
  add_text("ce_type", view(event.event_type));
  add_text("ce_subject", view(event.aggregate_id));
  if (is_writable_time(event.created_at_us)) {
    std::string &time = record.text();
    append_time(event.created_at_us, time);
    add_text("ce_time", time);
  }
  add_text("ce_partitionkey", view(event.key));
  add_text("ce_sequence", sequence_text(event, record.text()));

  std::string_view parent, state;
  for (const ob_header &header : headers_of(event)) {
    std::string_view name = view(header.name);
    if (name == "traceparent" && is_traceparent(view(header.value)))
      parent = view(header.value);
    else if (name == "tracestate")
      state = view(header.value);
  }
  if (!parent.empty()) { /* tracestate is meaningless without traceparent */
    add_text("ce_traceparent", parent);
    add_text("ce_tracestate", state);
  }
}

void CloudEvents::write_binary(const ob_event &event, Record &record) const {
  attributes(event, record, [&](std::string_view name, const ob_text &value) { record.add_header(name, value); });
  if (event.payload.data)
    record.add_header("content-type", as_text(media_type(event)));
  headers_.write_placed(event, record, false);
  headers_.write_own(event, record);
  record.value = event.payload;
}

/* Calls add(name with prefix, value) for each header of the event that is an attribute. */
template <class Add> void CloudEvents::extensions(const ob_event &event, Add add) const {
  for (const ob_header &header : headers_of(event))
    if (is_attribute(view(header.name)))
      add(view(header.name), header.value);
}

void CloudEvents::write_http_binary(const ob_event &event, Record &record) const {
  auto add = [&](std::string_view name, const ob_text &value) {
    std::string &header = record.text(), &encoded = record.text();
    (header = "ce-") += name.substr(prefix.size());
    append_header_value(view(value), encoded);
    record.add_header(header, as_text(encoded));
  };
  if (event.payload.data)
    record.add_header("Content-Type", as_text(media_type(event)));
  attributes(event, record, add);
  extensions(event, add);
  record.value = event.payload;
}

void CloudEvents::write_structured(const ob_event &event, Record &record) const {
  std::string &json = record.text();
  auto member = [&json](std::string_view name, const ob_text &value) {
    json += json.empty() ? '{' : ',';
    append_json_string(name, json);
    json += ':';
    append_json_string(view(value), json);
  };
  auto attribute = [&](std::string_view name, const ob_text &value) { member(name.substr(prefix.size()), value); };
  attributes(event, record, attribute);
  extensions(event, attribute);
  if (event.payload.data) {
    member("datacontenttype", as_text(media_type(event)));
    if (event.payload_is_bytes) {
      json += R"(,"data_base64":")";
      append_base64(view(event.payload), json);
      json += '"';
    } else {
      (json += R"(,"data":)") += view(event.payload);
    }
  }
  json += '}';
  record.value = as_text(json);
  if (binding_ == Binding::Http) {
    record.add_header("Content-Type", as_text("application/cloudevents+json; charset=utf-8"));
    return;
  }
  record.add_header("content-type", as_text("application/cloudevents+json; charset=UTF-8"));
  headers_.write_placed(event, record, false);
  headers_.write_own(event, record, prefix);
}

void CloudEvents::write_event(const ob_event &event, Record &record) const {
  if (mode_ == Mode::Structured)
    write_structured(event, record);
  else if (binding_ == Binding::Http)
    write_http_binary(event, record);
  else
    write_binary(event, record);
}

}  // namespace outbox
