/* kafka_broker.h: librdkafka's mock cluster of one broker or more, and a consumer that shows what arrived. */
#pragma once

#include <librdkafka/rdkafka.h>
#include <librdkafka/rdkafka_mock.h>

#include <optional>
#include <string>
#include <utility>
#include <vector>

struct Message {
  int32_t partition;
  std::optional<std::string> key, value;
  std::vector<std::pair<std::string, std::string>> headers;
  int64_t timestamp_ms;
};

class KafkaBroker {
public:
  explicit KafkaBroker(int brokers = 1);
  ~KafkaBroker();
  const char *address() const { return rd_kafka_mock_cluster_bootstraps(cluster_); }
  void create_topic(const char *topic, int partitions) {
    rd_kafka_mock_topic_create(cluster_, topic, partitions, 1);
    for (int partition = 0; partition < partitions; partition++)
      lead(topic, partition, 1);
  }
  /* All partitions of a topic have broker 1 as their leader, unless this names another one. */
  void lead(const char *topic, int partition, int broker) {
    rd_kafka_mock_partition_set_leader(cluster_, topic, partition, broker);
  }
  void stop(int broker = 1) { rd_kafka_mock_broker_set_down(cluster_, broker); }
  void start(int broker = 1) { rd_kafka_mock_broker_set_up(cluster_, broker); }
  /* The next `n` produce requests fail with this error. */
  void fail_produce(rd_kafka_resp_err_t error, int n) { fail(0, error, n); }
  /* The next produce requests end with these errors, one after the other. */
  void fail_produce(const std::vector<rd_kafka_resp_err_t> &errors) {
    rd_kafka_mock_push_request_errors_array(cluster_, 0, errors.size(), errors.data());
  }
  /* The same for requests with this API key of Kafka's protocol. */
  void fail(int16_t api_key, rd_kafka_resp_err_t error, int n);
  void pass(int16_t api_key) { rd_kafka_mock_clear_request_errors(cluster_, api_key); }
  /* The next produce request to this broker fails with this error. */
  void fail_produce_at(int broker, rd_kafka_resp_err_t error) {
    rd_kafka_mock_broker_push_request_error_rtts(cluster_, broker, 0, 1, error, 0);
  }
  /* Every response of the broker is delayed by this time. */
  void slow_down(int ms, int broker = 1) { rd_kafka_mock_broker_set_rtt(cluster_, broker, ms); }
  void topic_error(const char *topic, rd_kafka_resp_err_t error) {
    rd_kafka_mock_topic_set_error(cluster_, topic, error);
  }
  /* All messages of the topic, once there are at least `n`; by partition and offset. */
  std::vector<Message> read(const char *topic, int partitions, size_t n);

private:
  rd_kafka_t *host_;
  rd_kafka_mock_cluster_t *cluster_;
};
