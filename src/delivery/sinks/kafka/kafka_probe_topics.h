/* kafka_probe_topics.h: what a probe asks about topics: are they there, may the sink write to them? */
#pragma once

#include <librdkafka/rdkafka.h>

#include <optional>
#include <string>
#include <vector>

#include "delivery/engine/probe.h"
#include "delivery/sinks/kafka/kafka_client.h"

namespace outbox {

class KafkaProbeTopics {
public:
  struct Broker {
    int32_t id;
    std::string address; /* host:port, as the cluster tells it */
  };

  /* `glob` as KafkaConfig::topic_glob() gives it: one topic, or those of the cluster that fit. */
  KafkaProbeTopics(KafkaClient &client, Probe &probe, std::string glob)
      : client_(client), probe_(probe), glob_(std::move(glob)) {}

  /* Asks the cluster; makes no topic. */
  rd_kafka_resp_err_t read();
  const std::vector<Broker> &brokers() const { return brokers_; }
  /* Writes the steps about topics. */
  void judge();

private:
  struct Topic {
    std::string name;
    rd_kafka_resp_err_t error;
    int partitions;
    int leaderless; /* of them */
  };

  bool is_one() const { return glob_.find('*') == glob_.npos; }
  std::string who() const;
  void take(const rd_kafka_metadata_t *metadata);
  void explain(const Topic &topic);
  void explain_missing(const std::string &topic);
  std::optional<bool> broker_creates_topics();
  void judge_rights(const std::vector<std::string> &names);
  void ask_for_rights(const std::vector<std::string> &names);
  void tell_good(const std::vector<std::string> &names, const std::string &rights);
  rd_kafka_event_t *wait_for(rd_kafka_queue_t *queue);

  KafkaClient &client_;
  Probe &probe_;
  const std::string glob_;
  std::vector<Broker> brokers_;
  int32_t answering_ = -1; /* the broker that told all this */
  std::vector<Topic> topics_;
};

}  // namespace outbox
