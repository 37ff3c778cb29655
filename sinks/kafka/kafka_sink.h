/* kafka_sink.h: the Kafka sink. kafka.cpp has an event's path through it, kafka_failures.cpp the handling of errors.
 */
#pragma once

#include <algorithm>

#include "delivery/engine/background_jobs.h"
#include "delivery/engine/stall_detector.h"
#include "kafka_losses.h"
#include "kafka_slots.h"
#include "kafka_topics.h"
#include "kafka_topic_queues.h"

namespace outbox {

/* The start of every text about a topic. Deferred events are found by this prefix when the topic works again. */
std::string about_topic(const std::string &topic);

/*
 * The path of an event: submit() looks at its topic. If the topic is paused, the event ends as Deferred; if the topic
 * takes only few events at a time, it waits in topic_queues_. Otherwise produce() takes a slot and hands the record
 * to librdkafka. The message's ending names the slot; on_endings() frees it and completes the event.
 *
 * All functions run on the main thread, so there is no lock. librdkafka's threads reach only the producer, which
 * wakes the engine; the engine then calls poll().
 *
 * credit() is 0 while the sink must not accept events: `full_` until the next ending; `draining_`, and a stopped
 * producer, until no slot is used. poll() ends each of these states. It waits at most `longest_drain` for slots, then
 * it replaces the producer: a broker that does not answer must not stop the events for other brokers.
 */
class KafkaSink final : public Sink {
public:
  KafkaSink(std::shared_ptr<const KafkaConfig> config, std::shared_ptr<Reporter> reporter)
      : config_(std::move(config)), reporter_(std::move(reporter)), tokens_(open_tokens()),
        producer_(std::make_unique<KafkaProducer>(*config_, tokens_.get(), reporter_->wake_fd())) {}

  ~KafkaSink() override {
    producer_.reset();
    old_producers_.finish(Time::max());
  }

  uint32_t credit() const override {
    const size_t most = losses_.is_alone() ? 1 : config_->max_messages();
    const size_t taken = slots_.used() + topic_queues_.size();
    if (full_ || draining_ || (producer_ && producer_->stopped()) || taken >= most)
      return 0;
    return static_cast<uint32_t>(most - taken);
  }

  void keep_acknowledgements(bool keep) override {
    keeps_offsets_ = keep;
    if (producer_)
      producer_->keep_offsets(keep);
  }
  Submitted submit(const ob_event &event) override;
  bool checks_events() const override { return true; }
  void flush() override {
    now_ = std::chrono::steady_clock::now();
    check_clock(now_);
    check_stall(now_);
  }
  void poll() override;
  Time check_at() const override {
    constexpr std::chrono::seconds queue_interval{1};
    Time queue_at = topic_queues_.empty() ? Time::max() : now_ + queue_interval;
    return std::min({check_at_, drain_until_, queue_at, topics_.look_at(), reconnected_by()});
  }
  void release_queued() override {
    reporter_->complete(topic_queues_.release(0, true, "not sent yet"));
    if (producer_)
      producer_->purge_queued();
  }
  void abandon() override {
    reporter_->complete(slots_.release_all("given up while it was in flight"));
    reporter_->complete(topic_queues_.release(0, true, "not sent yet"));
  }

private:
  std::unique_ptr<KafkaTokens> open_tokens() const {
    if (!config_->tokens())
      return nullptr;
    return std::make_unique<KafkaTokens>(config_->tokens(), [reporter = reporter_](std::string text) {
      reporter->log(OB_LOG_WARNING, std::move(text));
    });
  }
  void on_endings(const KafkaProducer::Endings &endings);
  void on_failure(const KafkaSlots::Slot &slot, uint64_t opaque, rd_kafka_resp_err_t error, const std::string &topic,
                  int32_t partition);
  Submitted produce(const KafkaTicket &event, const Record &record);
  void send_queued();
  void return_queued_of(uint64_t key_hash);
  Completion topic_failed(const KafkaSlots::Slot &slot, uint64_t opaque, rd_kafka_resp_err_t error,
                          const std::string &topic);
  std::string topic_problem(rd_kafka_resp_err_t error, const std::string &topic) const;
  void report_degraded(Time now);
  void on_event(rd_kafka_event_t *event);
  void on_error(rd_kafka_event_t *event);
  void on_log(rd_kafka_event_t *event);
  void on_lost_connection(std::string_view text);
  void all_brokers_down(const std::string &text);
  void check_clock(Time now);
  void check_stall(Time now);
  void check_reconnected(Time now);
  /* When the sink counts as down unless a broker is connected by then. */
  Time reconnected_by() const {
    constexpr std::chrono::seconds grace{3};
    return closed_at_ == Time::max() || slots_.used() == 0 ? Time::max()
                                                           : std::max(closed_at_, slots_.oldest()->since) + grace;
  }
  void check_drain(Time now);
  static std::chrono::nanoseconds wall_ahead(Time now) {
    return std::chrono::system_clock::now().time_since_epoch() - now.time_since_epoch();
  }
  void replace_producer(const std::string &cause);
  void check_losses();
  std::string explain(rd_kafka_resp_err_t error, const char *text, const std::string &topic, int32_t partition) const;

  std::shared_ptr<const KafkaConfig> config_;
  std::shared_ptr<Reporter> reporter_;
  std::unique_ptr<KafkaTokens> tokens_;     /* null if the sink needs none of outbox; outlives the producers */
  std::unique_ptr<KafkaProducer> producer_; /* null after a fatal error until the next event */
  BackgroundJobs old_producers_;            /* destroys replaced producers */
  KafkaSlots slots_;
  KafkaTopics topics_;
  KafkaTopicQueues topic_queues_;
  KafkaLosses losses_;
  StallDetector stall_detector_;
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
  /* Status texts: of topics, of slow events, and the one that was reported last. */
  std::string paused_, slow_, degraded_;
  Time now_ = std::chrono::steady_clock::now();            /* time of the last flush() or poll() */
  Time look_at_{};                                         /* when to look for slow events again */
  std::chrono::nanoseconds wall_ahead_ = wall_ahead(now_); /* of the monotonic clock, at the last check */
  bool keeps_offsets_ = false;
  bool down_ = false;
  bool was_closed_ = false;      /* last_error_ is no failure to connect: is_ordinary_close() */
  Time closed_at_ = Time::max(); /* all connections were closed so then, and no attempt to connect has failed since */
  /* The producer's times_up() when the outage began: a larger value shows that it is over. */
  uint64_t times_up_when_down_ = 0;
  /* Ignore connected brokers until then: librdkafka reports that all are down before it reports the last one. */
  Time trust_up_after_{};
  Time check_at_ = Time::max(); /* when poll() is needed for a stall or for trust_up_after_ */
};

}  // namespace outbox
