/* kafka_probe_topics.h: the part of a probe about topics: do they exist, and may the sink write to them? */
#pragma once

#include <librdkafka/rdkafka.h>

#include <optional>
#include <string>
#include <vector>

#include "delivery/engine/probe.h"
#include "kafka_client.h"

namespace outbox {

class KafkaProbeTopics {
public:
  struct Broker {
    int32_t id;
    std::string address; /* host:port as the cluster announces it */
  };

  /* `glob` is KafkaConfig::topic_glob(): one topic, or a pattern for the cluster's topics. `may_create` is
   * KafkaConfig::lets_topics_be_created(). */
  KafkaProbeTopics(KafkaClient &client, Probe &probe, std::string glob, bool may_create)
      : client_(client), probe_(probe), glob_(std::move(glob)), may_create_(may_create) {}

  /* Reads the cluster's metadata; creates no topic. */
  rd_kafka_resp_err_t read();
  const std::vector<Broker> &brokers() const { return brokers_; }
  /* Records the steps about topics. */
  void check();

private:
  struct Topic {
    std::string name;
    rd_kafka_resp_err_t error;
    int partitions;
    int leaderless; /* partitions without a leader */
    bool is_missing() const {
      return error == RD_KAFKA_RESP_ERR_UNKNOWN_TOPIC_OR_PART || error == RD_KAFKA_RESP_ERR__UNKNOWN_TOPIC;
    }
  };

  bool is_one() const { return glob_.find('*') == glob_.npos; }
  std::string who() const;
  void take(const rd_kafka_metadata_t *metadata);
  void take_missing();
  void explain(const Topic &topic);
  void explain_missing(const std::string &topic);
  std::optional<bool> ask_broker();
  void check_rights(const std::vector<std::string> &names);
  void read_rights(const std::vector<std::string> &names);
  void report_good(const std::vector<std::string> &names, const std::string &rights);
  rd_kafka_event_t *wait_for(rd_kafka_queue_t *queue);

  KafkaClient &client_;
  Probe &probe_;
  const std::string glob_;
  const bool may_create_;
  std::vector<Broker> brokers_;
  int32_t answering_ = -1; /* the broker that sent the metadata */
  std::vector<Topic> topics_;
  std::optional<bool> broker_creates_; /* missing topics; not set: it was not asked, or did not say */
};

}  // namespace outbox
