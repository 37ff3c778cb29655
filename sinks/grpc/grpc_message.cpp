/* grpc_message.cpp: encodes an event. A header of the event with the value NULL becomes empty bytes. */
#include "grpc_message.h"

#include <algorithm>

#include "delivery/base/text_view.h"
#include "delivery/base/uuid.h"
#include "delivery/options/options.h"
#include "protobuf.h"

namespace outbox::grpc {
namespace {

/* The numbers in sink.proto. */
enum Field {
  Id = 1,
  AggregateType,
  AggregateId,
  Key,
  EventType,
  Payload,
  ContentType,
  Headers,
  CreatedAt,
  Attempt,
  Seq
};
enum MapField { Name = 1, Value = 2 };
enum TimestampField { Seconds = 1, Nanos = 2 };

std::string_view content_type_of(const ob_event &event) {
  if (!event.payload_is_bytes)
    return "application/json";
  return event.content_type.len > 0 ? view(event.content_type) : "application/octet-stream";
}

std::string timestamp(int64_t microseconds) {
  constexpr int64_t per_second = 1'000'000;
  int64_t seconds = microseconds / per_second, rest = microseconds % per_second;
  if (rest < 0) { /* nanos count forward, also before 1970 */
    seconds--;
    rest += per_second;
  }
  std::string out;
  ProtobufWriter writer(out);
  writer.varint_if_not_default(Seconds, static_cast<uint64_t>(seconds));
  writer.varint_if_not_default(Nanos, static_cast<uint64_t>(rest * 1000));
  return out;
}

void append_before_payload(const ob_event &event, std::string &out) {
  ProtobufWriter writer(out);
  writer.bytes(Id, uuid_text(event.id));
  writer.bytes_if_not_default(AggregateType, view(event.aggregate_type));
  if (event.aggregate_id.data)
    writer.bytes(AggregateId, view(event.aggregate_id));
  if (event.key.data)
    writer.bytes(Key, view(event.key));
  writer.bytes_if_not_default(EventType, view(event.event_type));
}

void append_after_payload(const ob_event &event, std::string &out) {
  ProtobufWriter writer(out);
  writer.bytes(ContentType, content_type_of(event));
  for (size_t i = 0; i < event.n_headers; i++) {
    std::string entry;
    ProtobufWriter pair(entry);
    pair.bytes(Name, view(event.headers[i].name));
    pair.bytes(Value, view(event.headers[i].value));
    writer.bytes(Headers, entry);
  }
  writer.bytes(CreatedAt, timestamp(event.created_at_us));
  writer.varint_if_not_default(Attempt, static_cast<uint64_t>(event.attempt));
  if (event.has_seq)
    writer.varint(Seq, static_cast<uint64_t>(event.seq));
}

void require_bytes(const ob_event &event) {
  if (!event.payload_is_bytes || !event.payload.data)
    throw BadInput(OB_BAD_VALUE, "payload_bytes", "event has no payload_bytes",
                   "Option \"message\" of the sink is payload_bytes: they are the protobuf message that is sent.",
                   "Give the serialized message as payload_bytes, or set message to 'event'.");
}

}  // namespace

size_t message_size(MessageForm form, const ob_event &event) {
  if (form == MessageForm::PayloadBytes) {
    require_bytes(event);
    return event.payload.len;
  }
  std::string rest;
  append_before_payload(event, rest);
  append_after_payload(event, rest);
  return rest.size() + (event.payload.data ? bytes_field_size(event.payload.len) : 0);
}

std::string message_of(MessageForm form, const ob_event &event) {
  if (form == MessageForm::PayloadBytes) {
    require_bytes(event);
    return std::string(view(event.payload));
  }
  std::string out;
  append_before_payload(event, out);
  if (event.payload.data)
    ProtobufWriter(out).bytes(Payload, view(event.payload));
  append_after_payload(event, out);
  return out;
}

bool is_metadata_value(std::string_view value) {
  return std::all_of(value.begin(), value.end(), [](char c) { return c >= 0x20 && c < 0x7f; });
}

HttpHeaders metadata_of(const ob_event &event) {
  HttpHeaders metadata{{"outbox-id", uuid_text(event.id)}};
  for (const char *name : {"traceparent", "tracestate"})
    for (size_t i = 0; i < event.n_headers; i++)
      if (const ob_header &header = event.headers[i];
          !header.binary && same_name(view(header.name), name) && is_metadata_value(view(header.value)))
        metadata.emplace_back(name, view(header.value));
  return metadata;
}

std::string framed(const std::string &message) {
  std::string out(5, '\0');
  for (size_t i = 0; i < 4; i++)
    out[1 + i] = static_cast<char>(message.size() >> (24 - 8 * i));
  return out += message;
}

}  // namespace outbox::grpc
