/*
 * kafka_producer.h: one instance of librdkafka's producer and its topic handles. It stops at the first failure, so
 * that no event of a key overtakes a failed one, and tells how each message ended.
 */
#pragma once

#include <librdkafka/rdkafka.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "delivery/base/thread.h"
#include "delivery/formats/record.h"
#include "kafka_config.h"
#include "kafka_connections.h"
#include "kafka_diagnosis.h"
#include "kafka_growth.h"

namespace outbox {

/*
 * States:
 *   running --(a message fails, and messages of its key may follow)--> stopped: produce() returns _QUEUE_FULL
 *   stopped --(the interceptor, or the sink by purge_if_needed(), purges the queue)--> purged
 *   stopped, purged --(the sink destroys it, because a broker does not answer)
 *   purged --(all messages have ended; the sink calls resume())--> running
 * Topic failures do not stop it: produce() refuses only until ended() has told the sink about the topic.
 *
 * Threads: the main thread calls the public functions. librdkafka's threads call on_acknowledgement(), which can also
 * run within produce() and within a purge, on_broker(), on_request() and on_response(). on_throttle() runs within
 * poll().
 *
 * Locks: mutex_ separates "stop and purge" from "check and produce", so that no message is produced between a stop
 * and its purge, and no thread of librdkafka sends between them. A message that such a purge ends does not take it
 * again, because librdkafka may hold locks then that produce() takes.
 * endings_mutex_ guards endings_ and is the innermost lock; brokers_mutex_ guards connections_ and answers_.
 *
 * Wake-ups: add_ending() writes to fd_ when endings_ was empty, and ended() empties it, both under endings_mutex_, so
 * every ending that ended() has not yet returned has been announced. librdkafka writes to fd_ only when its event
 * queue was empty, so the sink calls poll() until there is no event left.
 */
class KafkaProducer {
public:
  /* `tokens` gives the tokens of OAUTHBEARER, and outlives the producer; null: librdkafka needs none. `fd` is an
   * eventfd that becomes readable when poll() or ended() has something. `some_are_silent`: it connects to all brokers
   * at once, otherwise librdkafka may try the silent ones first and wait up to 30 s for each. Throws BadInput if
   * librdkafka refuses the properties as a whole. */
  KafkaProducer(const KafkaConfig &config, KafkaTokens *tokens, int fd, bool some_are_silent = false);
  /* May wait for librdkafka's threads. Messages that are not acknowledged are dropped without a report. */
  ~KafkaProducer();
  KafkaProducer(const KafkaProducer &) = delete;
  KafkaProducer &operator=(const KafkaProducer &) = delete;

  using Event = std::unique_ptr<rd_kafka_event_t, decltype(&rd_kafka_event_destroy)>;
  Event poll();

  /* How a message ended. */
  struct Ending {
    uint64_t opaque;
    rd_kafka_resp_err_t error;
    int32_t at; /* its index in Endings::failed, or in stored_at; -1 = unknown, or not kept */
  };
  struct Failed {
    std::string topic;
    int32_t partition;
    bool unanswered; /* a broker may have stored it */
  };
  struct Stored {
    int64_t offset;
    int32_t partition;
  };
  struct Endings {
    std::vector<Ending> all; /* in the order in which they ended */
    std::vector<Failed> failed;
    std::vector<Stored> stored_at; /* empty without keep_offsets() */
  };
  /* Whether Endings says where messages were stored. */
  void keep_offsets(bool keep) { keeps_offsets_ = keep; }
  /* The messages that ended since the last call. Valid until the next call. */
  const Endings &ended();

  /* Explains librdkafka's text about a failed connection: KafkaDiagnosis::explain(). */
  std::string explain(std::string_view text, bool has_delivered) const {
    return diagnosis_.explain(text, has_delivered);
  }
  bool is_refused(std::string_view text) const { return diagnosis_.is_refused(text); }

  /* The highest number of partitions of a topic that acknowledgements have shown. */
  size_t partitions_seen() const { return static_cast<size_t>(partitions_seen_.load()); }

  /* How long a broker's quota delayed the last request; 0 = not delayed. */
  std::chrono::milliseconds throttled() const { return std::chrono::milliseconds(throttled_ms_); }

  /* The number of brokers that are connected now, and how often any broker has connected. */
  int brokers_up() const { return brokers_up_; }
  uint64_t times_up() const { return times_up_; }
  /* How many connections to one broker were up and are not any more; of the broker that was lost most. */
  uint64_t connections_lost() const { return connections_lost_; }
  /* The number of a broker that has not answered a request of before this time. */
  std::optional<int32_t> silent_since(std::chrono::steady_clock::time_point time) const;

  /* Of the broker that is farthest away. */
  KafkaRoundTrips round_trips() const;

  /* This bit of an opaque marks a message behind which no message of its key can be: its failure does not stop the
   * producer. */
  static constexpr uint64_t alone = uint64_t(1) << 31;

  struct TopicDestroy {
    void operator()(rd_kafka_topic_t *topic) const { rd_kafka_topic_destroy(topic); }
  };
  struct Topic {
    std::unique_ptr<rd_kafka_topic_t, TopicDestroy> handle;
    /* Messages of this topic; the handle is valid while this is positive, and then until the next call of topic(). */
    size_t in_use = 0;
    const char *name() const { return rd_kafka_topic_name(handle.get()); }
  };
  /* Returns null if librdkafka refuses the name (rd_kafka_last_error()). */
  Topic *topic(const std::string &name);
  /* Queues a copy of the record. `opaque` is returned in the message's Ending. Returns _QUEUE_FULL while stopped. */
  rd_kafka_resp_err_t produce(Topic &topic, const Record &record, uint64_t opaque);

  /* Purges the messages that were not yet sent to a broker; they end as _PURGE_QUEUE. Never waits. */
  void purge_queued() {
    purge_requested_ = true;
    purge(producer_);
  }

  /* A message has failed, and messages of its key may be queued behind it: produce() refuses. */
  bool stopped() const { return stopped_; }
  /* Call it while stopped: purges the queue if the interceptor could not. */
  void purge_if_needed() {
    if (purge_needed_)
      stop_and_purge(producer_);
  }
  /* Call it when all messages have ended. A purge may still be on its way to a broker thread; if it then takes a new
   * message, the producer stops again. */
  void resume() { stopped_ = purged_ = purge_needed_ = purge_requested_ = false; }

private:
  friend struct LatePurge; /* of the unit test */
  static void purge(rd_kafka_t *producer) {
    rd_kafka_purge(producer, RD_KAFKA_PURGE_F_QUEUE | RD_KAFKA_PURGE_F_NON_BLOCKING);
  }
  static rd_kafka_resp_err_t on_new(rd_kafka_t *producer, const rd_kafka_conf_t *conf, void *self, char *, size_t);
  static rd_kafka_resp_err_t on_acknowledgement(rd_kafka_t *producer, rd_kafka_message_t *message, void *self);

  static void on_throttle(rd_kafka_t *producer, const char *name, int32_t id, int ms, void *);
  static rd_kafka_resp_err_t on_request(rd_kafka_t *producer, int socket, const char *name, int32_t id, int16_t api,
                                        int16_t version, int32_t correlation, size_t size, void *self);
  static rd_kafka_resp_err_t on_response(rd_kafka_t *producer, int socket, const char *name, int32_t id, int16_t api,
                                         int16_t version, int32_t correlation, size_t size, int64_t round_trip_us,
                                         rd_kafka_resp_err_t error, void *self);
  static rd_kafka_resp_err_t on_broker(rd_kafka_t *producer, int32_t id, const char *security, const char *name,
                                       int port, const char *state, void *self);

  void wake_engine() const;
  void add_ending(const rd_kafka_message_t *message);
  void stop_for(rd_kafka_t *producer, const rd_kafka_message_t *message);
  void stop_and_purge(rd_kafka_t *producer);

  KafkaDiagnosis diagnosis_;
  KafkaTokens *const tokens_;
  rd_kafka_t *producer_;
  rd_kafka_queue_t *queue_;
  const int fd_;
  const OwnThread main_;
  std::mutex endings_mutex_; /* guards endings_; innermost lock, taken while librdkafka holds locks of its own */
  Endings endings_;
  Endings taken_;    /* what ended() returned; the main thread's */
  std::mutex mutex_; /* held by produce() and by the interceptor while it purges */
  mutable std::mutex brokers_mutex_;
  KafkaConnections connections_; /* guarded by brokers_mutex_ */
  struct Answers {
    KafkaAnswerTimes all, produce;
    uint64_t n_produce = 0;
  };
  std::map<int32_t, Answers> answers_; /* by the broker's number; guarded by brokers_mutex_ */
  std::atomic<int> brokers_up_{0};
  std::atomic<uint64_t> times_up_{0};
  std::atomic<uint64_t> connections_lost_{0};
  int throttled_ms_ = 0; /* written by on_throttle() within poll(): the main thread's */
  /* Set by the interceptor, cleared by resume(). */
  std::atomic<bool> stopped_{false};
  std::atomic<bool> purged_{false};          /* the queue is purged, or was, since the stop */
  std::atomic<bool> purge_needed_{false};    /* the interceptor could not purge: librdkafka held locks */
  std::atomic<bool> purge_requested_{false}; /* purge_queued() was called and not all messages have ended */
  std::atomic<int32_t> partitions_seen_{0};
  std::atomic<bool> keeps_offsets_{false};
  std::atomic<bool> topic_failed_{false};         /* endings_ contains a topic failure */
  std::unordered_map<std::string, Topic> topics_; /* map nodes do not move */
};

}  // namespace outbox
