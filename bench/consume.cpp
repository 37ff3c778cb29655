/*
 * consume.cpp: shows that a topic holds events 1 to COUNT, each once and in the order of its key.
 *
 *   consume BROKERS TOPIC PARTITIONS COUNT
 *
 * Prints one line of JSON. Exit code 1, and what is wrong, when anything is missing, twice, out of order, of another
 * key than its payload says, or has the id of another.
 */
#include <librdkafka/rdkafka.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace {

[[noreturn]] void die(const std::string &what) {
  fprintf(stderr, "consume: %s\n", what.c_str());
  _Exit(1);
}

/* The text after `name` in the payload, up to `end`. */
std::string_view value_of(std::string_view payload, std::string_view name, char end) {
  size_t at = payload.find(name);
  if (at == payload.npos)
    die("no " + std::string(name) + " in " + std::string(payload));
  std::string_view rest = payload.substr(at + name.size());
  return rest.substr(0, rest.find(end));
}

class Ledger {
public:
  explicit Ledger(long count) : count_(count), seen_(static_cast<size_t>(count) + 1) {}

  void add(std::string_view key, std::string_view id, std::string_view payload) {
    long n = atol(value_of(payload, "\"n\": ", ',').data());
    if (n < 1 || n > count_ || seen_[static_cast<size_t>(n)])
      die("event " + std::to_string(n) + " arrived twice or was never enqueued");
    seen_[static_cast<size_t>(n)] = true;
    if (value_of(payload, "\"customer\": \"", '"') != key)
      die("event " + std::to_string(n) + " arrived with key " + std::string(key));
    long &last = last_[std::string(key)];
    if (n <= last)
      die("event " + std::to_string(n) + " of key " + std::string(key) + " came after event " + std::to_string(last));
    last = n;
    ids_.push_back(std::hash<std::string_view>{}(id));
    bytes_ += payload.size();
    arrived_++;
  }
  long arrived() const { return arrived_; }
  size_t keys() const { return last_.size(); }
  size_t bytes() const { return bytes_; }
  bool ids_differ() {
    std::sort(ids_.begin(), ids_.end());
    return std::adjacent_find(ids_.begin(), ids_.end()) == ids_.end();
  }

private:
  long count_, arrived_ = 0;
  std::vector<bool> seen_;
  std::unordered_map<std::string, long> last_;
  std::vector<size_t> ids_;
  size_t bytes_ = 0;
};

class Consumer {
public:
  Consumer(const char *brokers, const char *topic, int partitions) : topic_(topic), partitions_(partitions) {
    rd_kafka_conf_t *conf = rd_kafka_conf_new();
    const char *settings[][2] = {{"bootstrap.servers", brokers},
                                 {"group.id", "consume"},
                                 {"enable.auto.commit", "false"},
                                 {"auto.offset.reset", "error"},
                                 {"queued.max.messages.kbytes", "131072"}};
    char text[512];
    for (auto &[name, value] : settings)
      if (rd_kafka_conf_set(conf, name, value, text, sizeof text) != RD_KAFKA_CONF_OK)
        die(text);
    kafka_ = rd_kafka_new(RD_KAFKA_CONSUMER, conf, text, sizeof text);
    if (!kafka_)
      die(text);
    rd_kafka_poll_set_consumer(kafka_);
    queue_ = rd_kafka_queue_get_consumer(kafka_);
  }
  ~Consumer() {
    rd_kafka_queue_destroy(queue_);
    rd_kafka_consumer_close(kafka_);
    rd_kafka_destroy(kafka_);
  }
  Consumer(const Consumer &) = delete;
  Consumer &operator=(const Consumer &) = delete;

  /* The number of events in the topic. Call it before begin(), because a waiting fetch would delay the query. */
  long holds() {
    long sum = 0;
    for (int i = 0; i < partitions_; i++) {
      int64_t low = 0, high = 0;
      if (rd_kafka_resp_err_t error = rd_kafka_query_watermark_offsets(kafka_, topic_, i, &low, &high, 10000))
        die(rd_kafka_err2str(error));
      sum += high - low;
    }
    return sum;
  }

  void begin() {
    rd_kafka_topic_partition_list_t *all = rd_kafka_topic_partition_list_new(partitions_);
    for (int i = 0; i < partitions_; i++)
      rd_kafka_topic_partition_list_add(all, topic_, i)->offset = 0;
    if (rd_kafka_resp_err_t error = rd_kafka_assign(kafka_, all))
      die(rd_kafka_err2str(error));
    rd_kafka_topic_partition_list_destroy(all);
  }

  /* Adds the next events to the ledger, at most `missing`, because a batch waits until it is full; false if none
   * arrived for ten seconds. */
  bool take(Ledger &ledger, long missing) {
    rd_kafka_message_t *messages[10000];
    size_t size = std::min(std::size(messages), static_cast<size_t>(missing));
    ssize_t count = rd_kafka_consume_batch_queue(queue_, 10000, messages, size);
    for (ssize_t i = 0; i < count; i++) {
      rd_kafka_message_t *message = messages[i];
      if (message->err)
        die(rd_kafka_message_errstr(message));
      const void *id = nullptr;
      size_t id_size = 0;
      rd_kafka_headers_t *headers = nullptr;
      if (rd_kafka_message_headers(message, &headers) || rd_kafka_header_get_last(headers, "id", &id, &id_size))
        die("an event without an id");
      ledger.add({static_cast<char *>(message->key), message->key_len}, {static_cast<const char *>(id), id_size},
                 {static_cast<char *>(message->payload), message->len});
      rd_kafka_message_destroy(message);
    }
    return count > 0;
  }

private:
  const char *topic_;
  int partitions_;
  rd_kafka_t *kafka_;
  rd_kafka_queue_t *queue_;
};

}  // namespace

int main(int argc, char **argv) {
  if (argc != 5)
    die("BROKERS TOPIC PARTITIONS COUNT");
  long count = atol(argv[4]);
  Ledger ledger(count);
  auto start = std::chrono::steady_clock::now();
  Consumer consumer(argv[1], argv[2], atoi(argv[3]));
  if (long held = consumer.holds(); held != count)
    die("topic " + std::string(argv[2]) + " holds " + std::to_string(held) + " events, " + argv[4] +
        " were enqueued");
  consumer.begin();
  while (ledger.arrived() < count)
    if (!consumer.take(ledger, count - ledger.arrived()))
      die("only " + std::to_string(ledger.arrived()) + " of " + argv[4] + " events could be consumed");
  if (!ledger.ids_differ())
    die("two events have the same id");
  std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
  printf("{\"events\": %ld, \"keys\": %zu, \"bytes\": %zu, \"seconds\": %.1f}\n", count, ledger.keys(),
         ledger.bytes(), seconds.count());
}
