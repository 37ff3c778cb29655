/*
 * produce.cpp: librdkafka alone, the limit that outbox is compared with: the same producer settings, payload, key and
 * id header as the Kafka sink's, and nothing but a loop around them.
 *
 *   produce BROKERS TOPIC LINGER_MS drain KIND COUNT       all at once; kinds are those of events.h
 *   produce BROKERS TOPIC LINGER_MS pace RATE SECONDS OUT  evenly; OUT gets a line of times for each
 *
 * Prints one line of JSON. Exit code 1 when anything was not acknowledged.
 */
#include <librdkafka/rdkafka.h>

#include <sys/resource.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "events.h"
#include "pace.h"

namespace {

using namespace bench;

[[noreturn]] void die(const std::string &what) {
  fprintf(stderr, "produce: %s\n", what.c_str());
  exit(1);
}

long acknowledged = 0, failed = 0;

void on_report(rd_kafka_t *, const rd_kafka_message_t *message, void *) {
  if (message->err) {
    failed++;
    fprintf(stderr, "produce: %s\n", rd_kafka_err2str(message->err));
    return;
  }
  acknowledged++;
}

class Producer {
public:
  Producer(const char *brokers, const char *topic, const char *linger) {
    rd_kafka_conf_t *conf = rd_kafka_conf_new();
    const char *settings[][2] = {{"bootstrap.servers", brokers},
                                 {"linger.ms", linger},
                                 {"enable.idempotence", "true"},
                                 {"acks", "all"},
                                 {"compression.type", "lz4"},
                                 {"partitioner", "murmur2_random"},
                                 {"socket.nagle.disable", "true"},
                                 {"client.id", "produce"},
                                 {"queue.buffering.max.messages", "100000"}};
    char text[512];
    for (auto &[name, value] : settings)
      if (rd_kafka_conf_set(conf, name, value, text, sizeof text) != RD_KAFKA_CONF_OK)
        die(text);
    rd_kafka_conf_set_dr_msg_cb(conf, on_report);
    kafka_ = rd_kafka_new(RD_KAFKA_PRODUCER, conf, text, sizeof text);
    if (!kafka_)
      die(text);
    topic_ = rd_kafka_topic_new(kafka_, topic, nullptr);
    const rd_kafka_metadata_t *metadata = nullptr; /* connected before the clock starts, as a running worker is */
    if (rd_kafka_resp_err_t error = rd_kafka_metadata(kafka_, 0, topic_, &metadata, 10000))
      die(rd_kafka_err2str(error));
    rd_kafka_metadata_destroy(metadata);
  }
  ~Producer() {
    rd_kafka_topic_destroy(topic_);
    rd_kafka_destroy(kafka_);
  }
  Producer(const Producer &) = delete;
  Producer &operator=(const Producer &) = delete;

  void send(std::string_view key, std::string_view id, std::string_view payload) {
    for (;;) {
      rd_kafka_resp_err_t error =
          rd_kafka_producev(kafka_, RD_KAFKA_V_RKT(topic_), RD_KAFKA_V_MSGFLAGS(RD_KAFKA_MSG_F_COPY),
                            RD_KAFKA_V_KEY(key.data(), key.size()),
                            RD_KAFKA_V_VALUE(const_cast<char *>(payload.data()), payload.size()),
                            RD_KAFKA_V_HEADER("id", id.data(), static_cast<ssize_t>(id.size())), RD_KAFKA_V_END);
      if (!error)
        return;
      if (error != RD_KAFKA_RESP_ERR__QUEUE_FULL)
        die(rd_kafka_err2str(error));
      rd_kafka_poll(kafka_, 10);
    }
  }
  void poll() { rd_kafka_poll(kafka_, 0); }
  void flush() {
    if (rd_kafka_resp_err_t error = rd_kafka_flush(kafka_, 60000))
      die(rd_kafka_err2str(error));
  }

private:
  rd_kafka_t *kafka_;
  rd_kafka_topic_t *topic_;
};

double cpu_seconds() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  auto seconds = [](const timeval &time) {
    return static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec);
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

std::string id_of(long n) {
  char id[64];
  snprintf(id, sizeof id, "00000000-0000-7000-8000-%012ld", n);
  return id;
}

long drain(Producer &producer, Events::Kind kind, long count) {
  struct Ready {
    Event event;
    std::string id;
  };
  std::vector<Ready> ready;
  Events events(kind);
  for (long n = 1; n <= count; n++)
    ready.push_back({events.make(n), id_of(n)});

  double cpu = cpu_seconds();
  int64_t start = now_us();
  for (size_t n = 0; n < ready.size(); n++) {
    producer.send(ready[n].event.key, ready[n].id, ready[n].event.payload);
    if (n % 1000 == 0)
      producer.poll();
  }
  producer.flush();
  double seconds = 1e-6 * static_cast<double>(now_us() - start), used = cpu_seconds() - cpu;
  auto sent = static_cast<double>(count);
  printf("{\"events\": %ld, \"seconds\": %.3f, \"rate\": %.0f, \"cpu_us_per_event\": %.3f}\n", count, seconds,
         sent / seconds, 1e6 * used / sent);
  return count;
}

long pace(Producer &producer, double rate, double seconds, const char *out) {
  auto count = static_cast<long>(rate * seconds);
  std::vector<Times> times(static_cast<size_t>(count));
  Events events(Events::Kind::fixed);
  Pace due(rate);
  for (long n = 0; n < count; n++) {
    due.wait_for(n);
    Event event = events.make(n + 1);
    std::string id = id_of(n + 1);
    times[static_cast<size_t>(n)].begun_us = now_us();
    producer.send(event.key, id, event.payload);
    producer.poll();
  }
  producer.flush();
  if (!write_times(out, times.data(), count))
    die(std::string("cannot write ") + out);
  printf("{\"events\": %ld}\n", count);
  return count;
}

}  // namespace

int main(int argc, char **argv) {
  if (argc < 6)
    die("BROKERS TOPIC LINGER_MS drain KIND COUNT | pace RATE SECONDS OUT");
  std::string_view mode = argv[4];
  Events::Kind kind{};
  long sent = 0;
  {
    Producer producer(argv[1], argv[2], argv[3]);
    if (mode == "drain" && argc == 7 && Events::parse(argv[5], kind))
      sent = drain(producer, kind, atol(argv[6]));
    else if (mode == "pace" && argc == 8)
      sent = pace(producer, atof(argv[5]), atof(argv[6]), argv[7]);
    else
      die("unknown mode");
  }
  if (failed || acknowledged != sent)
    die(std::to_string(acknowledged) + " of " + std::to_string(sent) + " acknowledged");
}
