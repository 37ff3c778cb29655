/* kafka_preview.cpp: shows the record that would be sent for an event. */
#include "delivery/sinks/kafka/kafka_config.h"

namespace outbox {

static PreviewPart bytes_part(const char *part, std::string name, const ob_text &bytes) {
  PreviewPart made{part, std::move(name), {}, {}};
  if (bytes.data)
    made.bytes = view(bytes);
  return made;
}

static PreviewPart text_part(const char *part, std::string text) {
  return {part, {}, {}, std::move(text)};
}

Preview KafkaConfig::preview(const ob_event &event, int64_t) const {
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
