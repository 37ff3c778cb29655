/* kafka_producer.h: one instance of librdkafka's producer, and the topics that were used with it. */
#pragma once

#include <librdkafka/rdkafka.h>

#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>

#include "../formats/record.h"
#include "kafka_config.h"

namespace outbox {

class KafkaProducer {
public:
  /* `fd` is an eventfd that becomes readable when poll() has something. Throws BadInput when librdkafka refuses
   * the properties as a whole. */
  KafkaProducer(const KafkaConfig &config, int fd);
  /* May wait for librdkafka's threads. What is not acknowledged is dropped. */
  ~KafkaProducer();
  KafkaProducer(const KafkaProducer &) = delete;
  KafkaProducer &operator=(const KafkaProducer &) = delete;

  using Event = std::unique_ptr<rd_kafka_event_t, decltype(&rd_kafka_event_destroy)>;
  Event poll() { return {rd_kafka_queue_poll(queue_, 0), rd_kafka_event_destroy}; }

  /* Copies the record. `opaque` comes back in the delivery report. */
  rd_kafka_resp_err_t produce(const std::string &topic, const Record &record, uint64_t opaque);

  /* Gives back what no broker has been sent, with delivery reports as usual. Never waits. */
  void purge_queued() { rd_kafka_purge(producer_, RD_KAFKA_PURGE_F_QUEUE | RD_KAFKA_PURGE_F_NON_BLOCKING); }

private:
  struct TopicDestroy {
    void operator()(rd_kafka_topic_t *topic) const { rd_kafka_topic_destroy(topic); }
  };
  rd_kafka_topic_t *topic(const std::string &name);

  rd_kafka_t *producer_;
  rd_kafka_queue_t *queue_;
  std::unordered_map<std::string, std::unique_ptr<rd_kafka_topic_t, TopicDestroy>> topics_;
};

}  // namespace outbox
