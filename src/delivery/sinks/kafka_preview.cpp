/* kafka_preview.cpp: the record that an event becomes, to be looked at. */
#include "../formats/debezium.h"
#include "kafka_config.h"

namespace outbox {

static PreviewPart bytes_part(const char *part, const ob_text &bytes, std::string_view name = {}) {
  if (!bytes.data)
    return {part, std::string(name), {}, {}};
  return {part, std::string(name), std::string(bytes.data, bytes.len), {}};
}

Preview KafkaConfig::preview(const ob_event &event) const {
  Record record;
  std::string topic;
  debezium_record(event, record);
  topic_.render(event, topic);
  Preview parts;
  parts.push_back({"topic", {}, topic, {}});
  parts.push_back(bytes_part("key", record.key));
  for (const ob_header &header : record.headers)
    parts.push_back(bytes_part("header", header.value, view(header.name)));
  parts.push_back(bytes_part("value", record.value));
  return parts;
}

}  // namespace outbox
