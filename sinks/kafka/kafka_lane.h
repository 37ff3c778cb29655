/* kafka_lane.h: one producer of a Kafka sink, with all that holds per producer. kafka_lane.cpp has an event's path
 * through it, kafka_failures.cpp the handling of errors.
 */
#pragma once

#include <algorithm>
#include <optional>

#include "delivery/engine/background_jobs.h"
#include "kafka_log.h"
#include "kafka_losses.h"
#include "kafka_queues.h"
#include "kafka_slots.h"
#include "kafka_topics.h"

namespace outbox {

/* The start of every text about a topic. Deferred events are found by this prefix when the topic works again. */
std::string about_topic(const std::string &topic);

class KafkaLane;

/* The state that the lanes of a sink share. The sink derives from it, and its lanes are destroyed first. */
struct KafkaShared {
  using Time = std::chrono::steady_clock::time_point;

  std::shared_ptr<const KafkaConfig> config;
  std::shared_ptr<Reporter> reporter;
  std::unique_ptr<KafkaTokens> tokens; /* null if the sink needs none of outbox; outlives the producers */
  BackgroundJobs old_producers;        /* destroys replaced producers */
  KafkaTopics::LastWait last_wait = std::make_shared<Time>();
  KafkaLogRepeats log_repeats;
  bool keeps_offsets = false;
  bool has_delivered = false; /* since the sink was opened */
  bool is_down = false;       /* no lane works, as was reported */

  KafkaShared(std::shared_ptr<const KafkaConfig> config, std::shared_ptr<Reporter> reporter);
  virtual ~KafkaShared() = default;
  KafkaShared(const KafkaShared &) = delete;
  KafkaShared &operator=(const KafkaShared &) = delete;

  /* A lane with no event in flight sends one. */
  virtual void on_first(Time now) = 0;
  /* Events with so many bytes were acknowledged, which have been in flight for so long, added up. */
  virtual void on_acknowledged(size_t events, size_t bytes, std::chrono::nanoseconds in_flight, Time now) = 0;
  /* No event of the lane can be sent: its outage() says why. Called again when the cause changes. Returns whether the
   * sink as a whole is down. */
  virtual bool on_down(const KafkaLane &lane) = 0;
  /* A broker is connected again. */
  virtual void on_up(Time now) = 0;
  /* The topic cannot be used, for this reason, as an event of the lane has shown; it can again. */
  virtual void on_topic_paused(const KafkaLane &lane, const std::string &topic, const std::string &reason) = 0;
  virtual void on_topic_resumed(const std::string &topic) = 0;
};

/* Why nothing can be sent. */
struct KafkaOutage {
  std::string text;
  ob_reason reason;
  KafkaShared::Time since;
};

/*
 * The path of an event: if the lane takes none now, and its sink has others that do, the event waits in waiting_.
 * Otherwise admit() looks at its topic. If the topic is paused, the event ends as Deferred; if the topic
 * takes only few events at a time, it waits in topic_queues_. Otherwise produce() takes a slot and hands the record
 * to librdkafka. The message's ending names the slot; on_endings() frees it and completes the event.
 *
 * All functions run on the main thread, so there is no lock. librdkafka's threads reach only the producer, which
 * wakes the engine; the engine then calls poll().
 *
 * credit() is 0 while the lane must not send events: `full_` until the next ending; `draining_`, and a stopped
 * producer, until no slot is used; `reopen_at_` after a fatal error. poll() ends each of these states. It waits at
 * most `longest_drain` for slots, then it replaces the producer: a broker that does not answer must not stop the
 * events for other brokers.
 */
class KafkaLane final {
public:
  using Time = std::chrono::steady_clock::time_point;

  /* Throws BadInput if librdkafka refuses the properties as a whole. */
  explicit KafkaLane(KafkaShared &sink);
  KafkaLane(const KafkaLane &) = delete;
  KafkaLane &operator=(const KafkaLane &) = delete;

  uint32_t credit() const {
    const size_t most = losses_.is_alone() ? 1 : sink_.config->max_messages();
    const size_t taken = slots_.used() + topic_queues_.size();
    if (full_ || rests() || taken >= most)
      return 0;
    return static_cast<uint32_t>(most - taken);
  }
  /* It sends nothing for a time, for which the events of other lanes need not wait. */
  bool is_delayed() const { return down_ || rests(); }
  /* The events that librdkafka has; with those that it will get; and the bytes of these. */
  size_t in_flight() const { return slots_.used(); }
  size_t held() const { return slots_.used() + topic_queues_.size() + waiting_.size(); }
  size_t bytes() const { return slots_.bytes() + topic_queues_.bytes() + waiting_.bytes(); }
  /* All brokers are down, and the sink knows it. */
  bool is_down() const { return down_; }
  bool is_connected() const { return producer_ && producer_->brokers_up() > 0; }
  /* Until an event is acknowledged, or a broker is connected again. */
  const std::optional<KafkaOutage> &outage() const { return outage_; }
  /* Events are, or will be, sent. */
  bool works() const { return !outage_ && (held() > 0 || is_connected()); }
  size_t partitions_seen() const { return producer_ ? producer_->partitions_seen() : 0; }
  KafkaRoundTrips round_trips() const { return producer_ ? producer_->round_trips() : KafkaRoundTrips{}; }

  void keep_offsets(bool keep) {
    if (producer_)
      producer_->keep_offsets(keep);
  }
  /* `may_wait`: an event that cannot be sent now is accepted and waits, instead of being refused. */
  Submitted submit(const ob_event &event, bool may_wait);
  void flush() {
    now_ = std::chrono::steady_clock::now();
    check_clock(now_);
    plan_checks(now_);
  }
  void poll();
  Time check_at() const {
    constexpr std::chrono::seconds queue_interval{1};
    Time queue_at = topic_queues_.empty() ? Time::max() : now_ + queue_interval;
    Time reopen_at = waiting_.empty() ? Time::max() : std::max(reopen_at_, now_ + queue_interval);
    return std::min({check_at_, drain_until_, queue_at, reopen_at, topics_.look_at(), reconnected_by()});
  }
  void release_queued() {
    release_waiting("not sent yet");
    if (producer_)
      producer_->purge_queued();
  }
  void abandon() {
    sink_.reporter->complete(slots_.release_all("given up while it was in flight"));
    release_waiting("not sent yet");
  }
  /* Returns all its events; the next one opens a new producer. */
  void replace_producer(const std::string &cause);

  const KafkaTopics &topics() const { return topics_; }
  /* Whether its paused topics have changed since the last call. */
  bool take_topics_changed() { return std::exchange(topics_changed_, false); }
  void end_pause(const std::string &topic) { topics_changed_ |= topics_.end_pause(topic); }
  /* Why events wait although a broker is connected; empty: they do not. */
  const std::string &slow() const { return slow_; }
  bool is_throttled() const { return producer_ && producer_->throttled().count() > 0 && slots_.used() > 0; }

private:
  void on_endings(const KafkaProducer::Endings &endings);
  void on_failure(const KafkaSlots::Slot &slot, uint64_t opaque, rd_kafka_resp_err_t error,
                  const KafkaProducer::Failed &failed);
  bool takes(int64_t position);
  bool rests() const {
    return draining_ || (producer_ && producer_->stopped()) || (now_ < reopen_at_ && !sink_.is_down);
  }
  Submitted admit(const KafkaTicket &event, const Record &record);
  Submitted produce(const KafkaTicket &event, const Record &record);
  void send_queued();
  void send_waiting();
  void release_waiting(const char *why);
  void return_queued_of(uint64_t key_hash);
  Completion topic_failed(const KafkaSlots::Slot &slot, uint64_t opaque, rd_kafka_resp_err_t error,
                          const std::string &topic);
  std::string topic_problem(rd_kafka_resp_err_t error, const std::string &topic) const;
  void look_for_slow(Time now);
  void on_event(rd_kafka_event_t *event);
  void on_error(rd_kafka_event_t *event);
  void on_log(rd_kafka_event_t *event);
  void on_lost_connection(std::string_view text);
  void all_brokers_down(const std::string &text);
  void check_clock(Time now);
  void plan_checks(Time now);
  void check_reconnected(Time now);
  /* When the lane counts as down unless a broker is connected by then. */
  Time reconnected_by() const {
    constexpr std::chrono::seconds grace{3};
    return closed_at_ == Time::max() || slots_.used() == 0 ? Time::max()
                                                           : std::max(closed_at_, slots_.oldest()->since) + grace;
  }
  void check_drain(Time now);
  static std::chrono::nanoseconds wall_ahead(Time now) {
    return std::chrono::system_clock::now().time_since_epoch() - now.time_since_epoch();
  }
  void report_down(std::string text, ob_reason reason);
  void report_failed_producer(std::string text, ob_reason reason);
  void check_losses();
  std::string explain(rd_kafka_resp_err_t error, const char *text, const std::string &topic, int32_t partition) const;

  KafkaShared &sink_;
  std::unique_ptr<KafkaProducer> producer_; /* null after a fatal error until the next event */
  KafkaSlots slots_;
  KafkaTopics topics_;
  KafkaQueues topic_queues_;
  KafkaQueues waiting_; /* for credit(), in one queue */
  KafkaLosses losses_;
  Record record_;
  std::string last_error_;                       /* the last connection error: why brokers are down */
  ob_reason last_reason_ = OB_REASON_CONNECTION; /* the reason of last_error_ */
  std::string fatal_;                            /* a fatal error: the next poll() replaces the producer */
  bool full_ = false;                            /* librdkafka's queue is full: wait for an ending */
  bool draining_ = false;                        /* accept no event until all have ended: a batch was refused, or */
  bool clock_went_back_ = false;                 /* the producer is replaced then */
  static constexpr std::chrono::seconds longest_drain{5};
  Time drain_until_ = Time::max(); /* while it waits for slots: when to replace the producer */
  bool some_are_silent_ = false;   /* a drain took too long */
  bool topics_changed_ = false;
  std::string slow_;
  std::optional<KafkaOutage> outage_;
  Time reopen_at_{}; /* after a failure of the producer, while other lanes work */
  std::chrono::seconds reopen_pause_{0};
  Time now_ = std::chrono::steady_clock::now();            /* time of the last flush() or poll() */
  Time look_at_{};                                         /* when to look for slow events again */
  std::chrono::nanoseconds wall_ahead_ = wall_ahead(now_); /* of the monotonic clock, at the last check */
  bool down_ = false;
  bool was_closed_ = false;      /* last_error_ is no failure to connect: is_ordinary_close() */
  Time closed_at_ = Time::max(); /* all connections were closed so then, and no attempt to connect has failed since */
  /* The producer's times_up() when the outage began: a larger value shows that it is over. */
  uint64_t times_up_when_down_ = 0;
  /* Ignore connected brokers until then: librdkafka reports that all are down before it reports the last one. */
  Time trust_up_after_{};
  Time check_at_ = Time::max(); /* when poll() is needed for check_clock() or for trust_up_after_ */
};

}  // namespace outbox
