#include "delivery/sinks/kafka/kafka_limit.h"

#include <cstdlib>
#include <memory>
#include <string_view>

namespace outbox {

void ask_topic_limit(rd_kafka_t *client, const std::string &topic, rd_kafka_queue_t *queue) {
  constexpr int patience_ms = 2000; /* the sink stands still meanwhile */
  std::unique_ptr<rd_kafka_ConfigResource_t, decltype(&rd_kafka_ConfigResource_destroy)> resource(
      rd_kafka_ConfigResource_new(RD_KAFKA_RESOURCE_TOPIC, topic.c_str()), rd_kafka_ConfigResource_destroy);
  std::unique_ptr<rd_kafka_AdminOptions_t, decltype(&rd_kafka_AdminOptions_destroy)> options(
      rd_kafka_AdminOptions_new(client, RD_KAFKA_ADMIN_OP_DESCRIBECONFIGS), rd_kafka_AdminOptions_destroy);
  rd_kafka_AdminOptions_set_request_timeout(options.get(), patience_ms, nullptr, 0);
  rd_kafka_ConfigResource_t *resources[] = {resource.get()};
  rd_kafka_DescribeConfigs(client, resources, 1, options.get(), queue);
}

uint64_t read_topic_limit(rd_kafka_event_t *answer) {
  const rd_kafka_DescribeConfigs_result_t *result = rd_kafka_event_DescribeConfigs_result(answer);
  size_t n = 0;
  const rd_kafka_ConfigResource_t **resources =
      result ? rd_kafka_DescribeConfigs_result_resources(result, &n) : nullptr;
  if (n != 1)
    return 0;
  const rd_kafka_ConfigEntry_t **entries = rd_kafka_ConfigResource_configs(resources[0], &n);
  for (size_t i = 0; i < n; i++)
    if (std::string_view(rd_kafka_ConfigEntry_name(entries[i])) == "max.message.bytes")
      if (const char *value = rd_kafka_ConfigEntry_value(entries[i]))
        return strtoull(value, nullptr, 10);
  return 0;
}

}  // namespace outbox
