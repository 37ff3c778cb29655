/* kafka_sink.h: the sink itself. kafka.cpp is the way of an event through it, kafka_failures.cpp what can go wrong.
 */
#pragma once

#include <algorithm>

#include "delivery/engine/background_jobs.h"
#include "delivery/engine/stall_detector.h"
#include "delivery/sinks/kafka/kafka_slots.h"
#include "delivery/sinks/kafka/kafka_topics.h"
#include "delivery/sinks/kafka/kafka_turns.h"

namespace outbox {

/* How everything that is said of a topic begins, whatever is wrong: events that wait for it are found by that. */
std::string about_topic(const std::string &topic);

class KafkaSink final : public Sink {
public:
  KafkaSink(std::shared_ptr<const KafkaConfig> config, std::shared_ptr<Reporter> reporter)
      : config_(std::move(config)), reporter_(std::move(reporter)),
        producer_(std::make_unique<KafkaProducer>(*config_, reporter_->wake_fd())) {}

  ~KafkaSink() override {
    producer_.reset();
    dead_.finish(Time::max());
  }

  uint32_t credit() const override {
    size_t taken = slots_.used() + turns_.size();
    if (full_ || draining_ || (producer_ && producer_->stopped()) || taken >= config_->max_messages())
      return 0;
    return config_->max_messages() - static_cast<uint32_t>(taken);
  }

  Submitted submit(const ob_event &event) override;
  void flush() override {
    now_ = std::chrono::steady_clock::now();
    check_stall(now_);
  }
  void poll() override;
  Time check_at() const override { return std::min(check_at_, topics_.look_at()); }
  void release_queued() override {
    reporter_->complete(turns_.release(0, true, "not sent yet"));
    if (producer_)
      producer_->purge_queued();
  }
  void abandon() override {
    reporter_->complete(slots_.release_all("given up while it was on its way"));
    reporter_->complete(turns_.release(0, true, "not sent yet"));
  }

private:
  void on_endings(const KafkaProducer::Endings &endings);
  void on_failure(const KafkaSlots::Slot &slot, uint64_t opaque, rd_kafka_resp_err_t error, const std::string &topic,
                  int32_t partition);
  Submitted produce(uint64_t ticket, uint64_t key_hash, bool alone, const Record &record);
  void take_turns();
  void release_turns_of(uint64_t key_hash);
  Completion topic_failed(const KafkaSlots::Slot &slot, uint64_t opaque, rd_kafka_resp_err_t error,
                          const std::string &topic);
  std::string why_not(rd_kafka_resp_err_t error, const std::string &topic) const;
  void say_how_it_is(Time now);
  void on_event(rd_kafka_event_t *event);
  void on_error(rd_kafka_event_t *event);
  void on_log(rd_kafka_event_t *event);
  void on_lost_connection(std::string_view text);
  void check_stall(Time now);
  void check_return(Time now);
  void bury();
  std::string explain(rd_kafka_resp_err_t error, const char *text, const std::string &topic, int32_t partition) const;

  std::shared_ptr<const KafkaConfig> config_;
  std::shared_ptr<Reporter> reporter_;
  std::unique_ptr<KafkaProducer> producer_; /* null after a fatal error, until the next event */
  BackgroundJobs dead_;                     /* producers that were replaced */
  KafkaSlots slots_;
  KafkaTopics topics_;
  KafkaTurns turns_;
  StallDetector stall_detector_;
  Record record_;
  std::string last_error_;                       /* of a connection: why brokers are down */
  ob_reason last_reason_ = OB_REASON_CONNECTION; /* likewise */
  std::string fatal_;                            /* set when the producer must be replaced */
  bool full_ = false;     /* librdkafka's own bound was hit, or an earlier event of the key waits: for a report */
  bool draining_ = false; /* a batch was refused: everything has to come back before more goes */
  bool topics_changed_ = false;
  std::string paused_, slow_, degraded_; /* what is wrong with topics, with events under way, and what was said */
  Time now_ = std::chrono::steady_clock::now(); /* of the last flush() or poll() */
  Time look_at_{};                              /* for events that have been under way for long */
  bool down_ = false;
  uint64_t times_up_when_down_ = 0; /* a broker that has come up since shows that it is over */
  Time believe_up_at_{};            /* librdkafka says that all are down before it says so of the last one */
  Time check_at_ = Time::max();     /* for a stall, or for that */
};

}  // namespace outbox
