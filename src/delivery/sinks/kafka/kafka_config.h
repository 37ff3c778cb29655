/* kafka_config.h: the parsed options of a Kafka sink, and what they say about an event. */
#pragma once

#include <librdkafka/rdkafka.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "delivery/engine/sink.h"
#include "delivery/sinks/kafka/kafka_record.h"
#include "delivery/sinks/kafka/kafka_security.h"

namespace outbox {

using KafkaConf = std::unique_ptr<rd_kafka_conf_t, decltype(&rd_kafka_conf_destroy)>;

class KafkaConfig final : public SinkConfig {
public:
  static const std::vector<OptionSpec> &options();

  KafkaConfig(const Options &server, const Options *mapping); /* throws BadInput */

  void check_event(const ob_event &event) const override;
  void check_new_event(const ob_event &event) const override { maker_.check_new(event); }
  size_t max_payload() const override;
  Preview preview(const ob_event &event, int64_t now) const override;

  /* What is sent of an event: submitting, checking at enqueue time and previewing all ask here. Throws BadInput when
   * it cannot be sent, which the check tells its writer. */
  void record(const ob_event &event, Record &record) const { maker_.make(event, record); }
  /* How many events librdkafka may hold. */
  uint32_t max_messages() const { return max_messages_; }
  /* By which the brokers know the sink, where an option says so; else empty. */
  std::string user() const;
  /* Names of topics that events may go to, with "*" for what depends on the event. */
  std::string topic_glob() const { return maker_.topic_glob(); }
  /* A new set of librdkafka's properties. */
  KafkaConf conf() const;

private:
  KafkaRecordMaker maker_;
  KafkaProperties properties_; /* the user's */
  uint32_t max_messages_;
  size_t max_message_bytes_;
};

/* Starts a producer, whose log goes to its main queue. Throws BadInput when librdkafka refuses the properties as a
 * whole. */
rd_kafka_t *start_kafka(KafkaConf conf);

}  // namespace outbox
