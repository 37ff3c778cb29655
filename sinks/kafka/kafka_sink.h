/* kafka_sink.h: the Kafka sink: its lanes, and what is told of the sink as a whole. */
#pragma once

#include "delivery/engine/sink.h"
#include "delivery/engine/stall_detector.h"
#include "kafka_lane.h"

namespace outbox {

class KafkaSink final : public Sink, private KafkaShared {
public:
  using Time = Sink::Time;

  /* Throws BadInput if librdkafka refuses the properties as a whole. */
  KafkaSink(std::shared_ptr<const KafkaConfig> config, std::shared_ptr<Reporter> reporter);
  ~KafkaSink() override;

  uint32_t credit() const override { return lane_->credit(); }
  void keep_acknowledgements(bool keep) override {
    keeps_offsets = keep;
    lane_->keep_offsets(keep);
  }
  Submitted submit(const ob_event &event) override { return lane_->submit(event); }
  bool checks_events() const override { return true; }
  void flush() override;
  void poll() override;
  Time check_at() const override { return std::min(stall_check_at_, lane_->check_at()); }
  void release_queued() override { lane_->release_queued(); }
  void abandon() override { lane_->abandon(); }

private:
  void on_first(Time now) override { stall_detector_.on_submit(0, now); }
  void on_acknowledgement(KafkaLane &lane, Time now) override;
  void on_down(KafkaLane &lane, std::string text, ob_reason reason) override;
  void on_up(KafkaLane &lane, Time now) override;
  void check_stall(Time now);
  void report_degraded();

  std::unique_ptr<KafkaLane> lane_;
  StallDetector stall_detector_;
  Time stall_check_at_ = Time::max();
  std::string degraded_; /* the status text that was reported last */
};

}  // namespace outbox
