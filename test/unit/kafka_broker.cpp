#include "kafka_broker.h"
#include "patience.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <memory>

KafkaBroker::KafkaBroker(int brokers) {
  char error[512];
  host_ = rd_kafka_new(RD_KAFKA_PRODUCER, rd_kafka_conf_new(), error, sizeof error);
  cluster_ = rd_kafka_mock_cluster_new(host_, brokers);
}

KafkaBroker::~KafkaBroker() {
  rd_kafka_mock_cluster_destroy(cluster_);
  rd_kafka_destroy(host_);
}

void KafkaBroker::fail(int16_t api_key, rd_kafka_resp_err_t error, int n) {
  std::vector<rd_kafka_resp_err_t> errors(static_cast<size_t>(n), error);
  rd_kafka_mock_push_request_errors_array(cluster_, api_key, errors.size(), errors.data());
}

static std::optional<std::string> bytes(const void *data, size_t size) {
  if (!data)
    return std::nullopt;
  return std::string(static_cast<const char *>(data), size);
}

static Message copy(const rd_kafka_message_t *from) {
  Message message{from->partition,
                  bytes(from->key, from->key_len),
                  bytes(from->payload, from->len),
                  {},
                  rd_kafka_message_timestamp(from, nullptr)};
  rd_kafka_headers_t *headers;
  if (rd_kafka_message_headers(from, &headers) == RD_KAFKA_RESP_ERR_NO_ERROR) {
    const char *name;
    const void *value;
    size_t size;
    for (size_t i = 0; rd_kafka_header_get_all(headers, i, &name, &value, &size) == RD_KAFKA_RESP_ERR_NO_ERROR; i++)
      message.headers.emplace_back(name, bytes(value, size).value_or("NULL"));
  }
  return message;
}

std::vector<Message> KafkaBroker::read(const char *topic, int partitions, size_t n) {
  char error[512];
  rd_kafka_conf_t *conf = rd_kafka_conf_new();
  rd_kafka_conf_set(conf, "bootstrap.servers", address(), error, sizeof error);
  rd_kafka_conf_set(conf, "group.id", "reader", error, sizeof error);
  std::unique_ptr<rd_kafka_t, decltype(&rd_kafka_destroy)> consumer(
      rd_kafka_new(RD_KAFKA_CONSUMER, conf, error, sizeof error), rd_kafka_destroy);
  rd_kafka_poll_set_consumer(consumer.get());
  rd_kafka_topic_partition_list_t *list = rd_kafka_topic_partition_list_new(partitions);
  for (int partition = 0; partition < partitions; partition++)
    rd_kafka_topic_partition_list_add(list, topic, partition)->offset = RD_KAFKA_OFFSET_BEGINNING;
  rd_kafka_assign(consumer.get(), list);
  rd_kafka_topic_partition_list_destroy(list);

  std::vector<Message> messages;
  auto end = patience_ends(std::chrono::seconds(20));
  while (messages.size() < n && std::chrono::steady_clock::now() < end) {
    rd_kafka_message_t *message = rd_kafka_consumer_poll(consumer.get(), 100);
    if (!message)
      continue;
    if (!message->err)
      messages.push_back(copy(message));
    rd_kafka_message_destroy(message);
  }
  /* No more: all available records come in one fetch. */
  while (rd_kafka_message_t *message = rd_kafka_consumer_poll(consumer.get(), 200)) {
    if (!message->err)
      messages.push_back(copy(message));
    rd_kafka_message_destroy(message);
  }
  EXPECT_GE(messages.size(), n);
  std::stable_sort(messages.begin(), messages.end(),
                   [](const Message &a, const Message &b) { return a.partition < b.partition; });
  rd_kafka_consumer_close(consumer.get());
  return messages;
}
