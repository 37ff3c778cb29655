/*
 * kafka_client.h: a librdkafka client for a probe. It connects to every broker that it learns of, creates no topic,
 * and records how far each connection got.
 */
#pragma once

#include <librdkafka/rdkafka.h>

#include <chrono>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "kafka_config.h"
#include "kafka_diagnosis.h"

namespace outbox {

/* "sasl_ssl://host:9092/bootstrap: Connect to ... failed" -> host:9092; empty when the text names no broker. */
std::string broker_address(std::string_view text);

/* The state of a connection to a broker. */
struct KafkaLink {
  using Time = std::chrono::steady_clock::time_point;
  std::string protocol; /* "sasl_ssl" */
  std::string state;    /* librdkafka's name of the state */
  Time connected, secured, up;
  bool was_connected = false, was_secured = false, was_authenticating = false, was_up = false;
  std::string problem; /* librdkafka's text about the last failure */
};

class KafkaClient {
public:
  explicit KafkaClient(const KafkaConfig &config);
  ~KafkaClient();
  KafkaClient(const KafkaClient &) = delete;
  KafkaClient &operator=(const KafkaClient &) = delete;

  rd_kafka_t *handle() const { return kafka_; }
  const std::string &user() const { return user_; }
  const std::string &mechanism() const { return mechanism_; }

  /* Handles librdkafka's events; waits at most `slice`. */
  void poll(std::chrono::milliseconds slice);
  std::map<std::string, KafkaLink> links() const;
  std::string explain(const KafkaLink &link) const { return diagnosis_.explain(link.problem); }
  /* All brokers were tried and none responded. */
  bool all_down() const { return all_down_; }
  bool has_producer_id() const { return has_producer_id_; }
  /* Why the cluster has not assigned a producer id. */
  const std::string &producer_id_problem() const { return producer_id_problem_; }
  bool fatal() const { return fatal_; }

private:
  static rd_kafka_resp_err_t on_new(rd_kafka_t *kafka, const rd_kafka_conf_t *, void *self, char *, size_t);
  static rd_kafka_resp_err_t on_broker(rd_kafka_t *, int32_t id, const char *protocol, const char *name, int port,
                                       const char *state, void *self);
  void on_event(rd_kafka_event_t *event);
  void on_error(rd_kafka_event_t *event);
  void on_log(rd_kafka_event_t *event);
  void on_failure(std::string text);

  KafkaDiagnosis diagnosis_;
  mutable std::mutex mutex_; /* guards links_, which librdkafka's threads write */
  std::map<std::string, KafkaLink> links_;
  bool all_down_ = false, has_producer_id_ = false, fatal_ = false;
  std::string producer_id_problem_;
  std::string user_, mechanism_;
  rd_kafka_t *kafka_ = nullptr;
  rd_kafka_queue_t *queue_ = nullptr;
};

}  // namespace outbox
