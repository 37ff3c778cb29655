/*
 * kafka_producer.h: one instance of librdkafka's producer, and the topics that were used with it.
 *
 * librdkafka goes on with later messages of a key when one has failed, before anybody could have read the report. So
 * the producer stops at the first failure: an interceptor, called on the broker's thread that got the refusal, purges
 * what is queued before that thread can send more, and nothing new is to be handed in until all has come back.
 *
 * The interceptor is also what says how each message ended. librdkafka's own delivery reports would bring the
 * messages themselves back, to be freed on the thread that has the most to do.
 */
#pragma once

#include <librdkafka/rdkafka.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "delivery/formats/record.h"
#include "delivery/sinks/kafka/kafka_config.h"
#include "delivery/sinks/kafka/kafka_diagnosis.h"

namespace outbox {

class KafkaProducer {
public:
  /* `fd` is an eventfd that becomes readable when poll() or ended() has something. Throws BadInput when librdkafka
   * refuses the properties as a whole. */
  KafkaProducer(const KafkaConfig &config, int fd);
  /* May wait for librdkafka's threads. What is not acknowledged is dropped. */
  ~KafkaProducer();
  KafkaProducer(const KafkaProducer &) = delete;
  KafkaProducer &operator=(const KafkaProducer &) = delete;

  using Event = std::unique_ptr<rd_kafka_event_t, decltype(&rd_kafka_event_destroy)>;
  Event poll();

  /* How a message ended. */
  struct Ending {
    uint64_t opaque;
    rd_kafka_resp_err_t error;
    int32_t place; /* of a failed one, in Endings::places; -1 = not known */
  };
  struct Place {
    std::string topic;
    int32_t partition;
  };
  struct Endings {
    std::vector<Ending> all; /* in the order in which it happened */
    std::vector<Place> places;
  };
  /* What has ended since the last call. Valid until the next. */
  const Endings &ended();

  /* Why a connection failed. */
  std::string explain(std::string_view text) const { return diagnosis_.explain(text); }

  /* How long a broker's quota made the last request wait; 0: not at all. */
  std::chrono::milliseconds throttled() const { return std::chrono::milliseconds(throttled_ms_); }

  /* How many brokers are connected now, and how often one came up. */
  int brokers_up() const { return brokers_up_; }
  uint64_t times_up() const { return times_up_; }

  /* Opaques with this bit belong to messages behind which none of their key can be: they fail alone. */
  static constexpr uint64_t alone = uint64_t(1) << 31;

  struct TopicDestroy {
    void operator()(rd_kafka_topic_t *topic) const { rd_kafka_topic_destroy(topic); }
  };
  struct Topic {
    std::unique_ptr<rd_kafka_topic_t, TopicDestroy> handle;
    size_t in_use = 0; /* as long as that is counted it stays, and after that until the next call of topic() */
    const char *name() const { return rd_kafka_topic_name(handle.get()); }
  };
  /* Null when librdkafka refuses (rd_kafka_last_error()). */
  Topic *topic(const std::string &name);
  /* Copies the record. `opaque` comes back when the message has ended. While stopped: _QUEUE_FULL. */
  rd_kafka_resp_err_t produce(Topic &topic, const Record &record, uint64_t opaque);

  /* Gives back what no broker has been sent. Never waits. */
  void purge_queued() {
    recalled_ = true;
    purge(producer_);
  }

  /* A message has failed that others of its key may have followed. */
  bool stopped() const { return stopped_; }
  /* While stopped: purges what the interceptor could not. */
  void purge_rest() {
    if (timed_out_.exchange(false) && !purged_.exchange(true))
      purge_queued();
  }
  /* Everything has come back. A purge may still be on its way to a broker's thread: what it takes then was not meant,
   * and stops the producer anew. */
  void resume() { stopped_ = purged_ = timed_out_ = recalled_ = false; }

private:
  friend struct LatePurge; /* of the unit test */
  static void purge(rd_kafka_t *producer) {
    rd_kafka_purge(producer, RD_KAFKA_PURGE_F_QUEUE | RD_KAFKA_PURGE_F_NON_BLOCKING);
  }
  static rd_kafka_resp_err_t on_new(rd_kafka_t *producer, const rd_kafka_conf_t *conf, void *self, char *, size_t);
  static rd_kafka_resp_err_t on_acknowledgement(rd_kafka_t *producer, rd_kafka_message_t *message, void *self);

  static void on_throttle(rd_kafka_t *producer, const char *name, int32_t id, int ms, void *);
  static rd_kafka_resp_err_t on_broker(rd_kafka_t *producer, int32_t id, const char *security, const char *name,
                                       int port, const char *state, void *self);

  void ring() const;
  void add_ending(const rd_kafka_message_t *message);
  void stop_for(rd_kafka_t *producer, const rd_kafka_message_t *message);

  KafkaDiagnosis diagnosis_;
  rd_kafka_t *producer_;
  rd_kafka_queue_t *queue_;
  const int fd_;
  std::mutex endings_mutex_; /* taken last, with whatever locks librdkafka holds */
  Endings endings_;
  Endings taken_;    /* by ended(); for the caller's thread alone */
  std::mutex mutex_; /* between a failure and what is being produced */
  std::mutex brokers_mutex_;
  std::set<std::string> connected_; /* brokers, by address */
  std::atomic<int> brokers_up_{0};
  std::atomic<uint64_t> times_up_{0};
  int throttled_ms_ = 0; /* within poll() */
  std::atomic<bool> stopped_{false}, purged_{false}, timed_out_{false};
  std::atomic<bool> recalled_{false};             /* purged on purpose, and not all of it is back */
  std::atomic<bool> topic_failed_{false};         /* in `endings_` stands a message that its topic failed */
  std::unordered_map<std::string, Topic> topics_; /* its nodes do not move */
};

}  // namespace outbox
