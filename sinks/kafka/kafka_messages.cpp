/* kafka_messages.cpp: checks events, makes records of them, and shows those that would be sent. */
#include "kafka_messages.h"

#include <cstdlib>

#include "delivery/options/headers.h"

namespace outbox {

static constexpr size_t id_header_bytes = 2 + 36;
static constexpr size_t default_message_bytes = 1'000'000; /* librdkafka's */

/* The option; 0 if it is not set. */
static size_t message_bytes(const Options &server) {
  const std::string *given = find_option(server, MESSAGE_MAX_BYTES);
  return given ? strtoull(given->c_str(), nullptr, 0) : 0; /* base 0, as librdkafka reads it */
}

KindDefaults kafka_defaults(const Options &server) {
  return {.max_attempts = 10, .retry = "100ms..5min", .largest_message = message_bytes(server)};
}

KafkaMessages::KafkaMessages(const KafkaRecordOptions &options, const Options &server)
    : maker_(options),
      max_message_bytes_(find_option(server, MESSAGE_MAX_BYTES) ? message_bytes(server) : default_message_bytes) {}

void KafkaMessages::check_event(const ob_event &event) const {
  check_size(maker_.check(event));
}

void KafkaMessages::record(const ob_event &event, Record &record) const {
  check_headers(event);
  maker_.make(event, record);
  check_size(record.size());
}

void KafkaMessages::check_size(size_t record) const {
  if (record > max_message_bytes_)
    throw BadInput(OB_TOO_LARGE, "message_max_bytes", "event is too large for a Kafka message",
                   "With its key and headers it has " + std::to_string(record) + " bytes, and at most " +
                       std::to_string(max_message_bytes_) + " are allowed.",
                   "Raise option \"message_max_bytes\" of the sink and \"max.message.bytes\" of the topic, or send "
                   "a reference to the data.");
}

size_t KafkaMessages::max_payload() const {
  return maker_.max_payload(max_message_bytes_ - id_header_bytes);
}

static PreviewPart bytes_part(const char *part, std::string name, const ob_text &bytes) {
  PreviewPart made{part, std::move(name), {}, {}};
  if (bytes.data)
    made.bytes = view(bytes);
  return made;
}

static PreviewPart text_part(const char *part, std::string text) {
  return {part, {}, {}, std::move(text)};
}

Preview KafkaMessages::preview(const ob_event &event, int64_t) const {
  Record made;
  Preview parts;

  record(event, made);
  parts.push_back({"topic", {}, made.topic, {}});
  if (made.partition >= 0)
    parts.push_back(text_part("partition", std::to_string(made.partition)));
  parts.push_back(text_part("timestamp", made.timestamp_ms == 0 ? "(the time of each attempt)"
                                                                : std::to_string(made.timestamp_ms)));
  parts.push_back(bytes_part("key", {}, made.key));
  for (const ob_header &header : made.headers)
    parts.push_back(bytes_part("header", std::string(view(header.name)), header.value));
  parts.push_back(bytes_part("value", {}, made.value));
  return parts;
}

}  // namespace outbox
