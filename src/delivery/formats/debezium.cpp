/*
 * debezium.cpp: follows the Outbox Event Router field by field; the tests compare its bytes with those of a real
 * Kafka Connect.
 */
#include "delivery/formats/debezium.h"

#include <algorithm>

#include "delivery/base/base64.h"
#include "delivery/base/text_view.h"
#include "delivery/base/uuid.h"
#include "delivery/options/options.h"

namespace outbox {

/* The schema of a jsonb column. */
static constexpr std::string_view json_schema =
    R"({"schema":{"type":"string","optional":true,"name":"io.debezium.data.Json","version":1},"payload":)";

static std::vector<std::string> own_headers(const Debezium::Options &options) {
  std::vector<std::string> names;
  if (options.id_header)
    names.push_back("id");
  if (options.content_type)
    names.push_back("content-type");
  return names;
}

Debezium::Debezium(const Options &options) : options_(options), headers_(options.placements, own_headers(options)) {
  std::copy_if(options.placements.begin(), options.placements.end(), std::back_inserter(envelope_),
               [](const Placement &placement) { return placement.place == Place::Envelope; });
}

void Debezium::write_event(const ob_event &event, Record &record) const {
  if (options_.id_header) {
    uuid_text(event.id, record.id_text);
    record.add_header("id", {record.id_text, sizeof record.id_text});
  }
  if (options_.content_type && event.content_type.data)
    record.add_header("content-type", event.content_type);
  headers_.write_placed(event, record, true);
  headers_.write_own(event, record);
  if (reads_payload(event))
    write_value(event, record);
  else
    record.value = event.payload;
}

bool Debezium::reads_payload(const ob_event &event) const {
  if (!event.payload.data && options_.tombstone.value_or(true))
    return false;
  if (!envelope_.empty())
    return true;
  return !event.payload_is_bytes && options_.value != ValueFormat::Raw && options_.value != ValueFormat::Bytes;
}

void Debezium::write_value(const ob_event &event, Record &record) const {
  std::string &value = record.text();
  if (options_.value == ValueFormat::ConnectJson) {
    value += json_schema;
    append_payload(event, value);
    value += '}';
  } else if (envelope_.empty()) {
    append_payload(event, value);
  } else {
    append_envelope(event, record, value);
  }
  record.value = as_text(value);
}

void Debezium::append_payload(const ob_event &event, std::string &out) const {
  std::string_view payload = view(event.payload);
  if (!event.payload.data) {
    out += "null";
  } else if (event.payload_is_bytes) {
    out += '"';
    append_base64(payload, out);
    out += '"';
  } else if (options_.value == ValueFormat::JsonCompact) {
    append_compact_json(payload, options_.nulls, out);
  } else {
    append_json_string(payload, out);
  }
}

void Debezium::append_envelope(const ob_event &event, Record &record, std::string &out) const {
  out += R"({"payload":)";
  append_payload(event, out);
  for (const Placement &placement : envelope_) {
    out += ',';
    append_json_string(placement.alias, out);
    out += ':';
    const ob_header *header = placement.field.header(event);
    ob_text value = field_value(placement.field, event, record);
    if (!value.data) {
      out += "null";
    } else if (header && header->binary) {
      out += '"';
      append_base64(view(value), out);
      out += '"';
    } else if (placement.field.is_number()) {
      out += view(value);
    } else {
      append_json_string(view(value), out);
    }
  }
  out += '}';
}

void Debezium::check(const ob_event &event) const {
  if (options_.value == ValueFormat::Bytes && event.payload.data && !event.payload_is_bytes)
    throw BadInput(OB_BAD_VALUE, "value_format", "event has a JSON payload, and the sink takes bytes",
                   "Option \"value_format\" of the sink is \"bytes\".",
                   "Give the event payload_bytes (outbox.enqueue_bytes), or change the option.");
}

/* An accidental NULL payload would delete its key from a compacted topic. */
void Debezium::check_new(const ob_event &event) const {
  bool writes_null = !event.payload.data && reads_payload(event);
  if (event.payload.data || writes_null || options_.tombstone.value_or(false))
    return;
  throw BadInput(OB_BAD_VALUE, "payload", "payload is NULL, and the sink sends no tombstones",
                 "A record without a value is a tombstone, which deletes its key from a compacted topic.",
                 "Give the event a payload, such as {}, or set option \"tombstone_on_empty_payload\" of the sink: "
                 "'true' sends a tombstone, 'false' sends null where the option \"value_format\" makes JSON.");
}

size_t Debezium::shrinks() const {
  if (options_.value != ValueFormat::JsonCompact)
    return 1;
  return options_.nulls == NullBehavior::Keep ? 2 : 0; /* at most every second byte is white space */
}

}  // namespace outbox
