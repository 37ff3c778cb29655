/* kafka_sink.cpp: whether the sink as a whole is down, or a part of it. */
#include "kafka_sink.h"

namespace outbox {

static std::unique_ptr<KafkaTokens> open_tokens(const KafkaConfig &config, std::shared_ptr<Reporter> reporter) {
  if (!config.tokens())
    return nullptr;
  return std::make_unique<KafkaTokens>(config.tokens(), [reporter = std::move(reporter)](std::string text) {
    reporter->log(OB_LOG_WARNING, std::move(text));
  });
}

KafkaShared::KafkaShared(std::shared_ptr<const KafkaConfig> config_, std::shared_ptr<Reporter> reporter_)
    : config(std::move(config_)), reporter(std::move(reporter_)), tokens(open_tokens(*config, reporter)) {}

KafkaSink::KafkaSink(std::shared_ptr<const KafkaConfig> config, std::shared_ptr<Reporter> reporter)
    : KafkaShared(std::move(config), std::move(reporter)),
      lane_(std::make_unique<KafkaLane>(static_cast<KafkaShared &>(*this))) {}

KafkaSink::~KafkaSink() {
  lane_.reset();
  old_producers.finish(Time::max());
}

void KafkaSink::flush() {
  lane_->flush();
  check_stall(std::chrono::steady_clock::now());
}

void KafkaSink::poll() {
  lane_->poll();
  check_stall(std::chrono::steady_clock::now());
  report_degraded();
}

void KafkaSink::on_acknowledgement(KafkaLane & /*lane*/, Time now) {
  stall_detector_.on_acknowledgement(now);
}

void KafkaSink::on_down(KafkaLane & /*lane*/, std::string text, ob_reason reason) {
  reporter->down(std::move(text), reason);
}

void KafkaSink::on_up(KafkaLane & /*lane*/, Time now) {
  stall_detector_.on_reconnection(now); /* nothing could be acknowledged before */
  reporter->up();
}

/* Detects brokers that are connected but do not respond; librdkafka has no event for that. */
void KafkaSink::check_stall(Time now) {
  const size_t waiting = lane_->is_down() ? 0 : lane_->in_flight(); /* an outage is already reported */
  if (waiting == 0) {
    stall_check_at_ = Time::max();
  } else if (stall_detector_.is_stalled(waiting, now)) {
    stall_check_at_ = now + StallDetector::stall_after / 6; /* report again while it lasts */
    reporter->down("no broker has acknowledged anything for " + std::to_string(StallDetector::stall_after.count()) +
                       " s, and " +
                       (waiting == 1 ? "1 event waits for it" : std::to_string(waiting) + " events wait for it"),
                   OB_REASON_TIMEOUT);
  } else if (stall_check_at_ == Time::max() || stall_check_at_ <= now) {
    stall_check_at_ = stall_detector_.stalled_at();
  }
}

/* Reports whether a part of the sink has a problem while the rest works. */
void KafkaSink::report_degraded() {
  const char *throttled = lane_->is_throttled() ? "throttled: the brokers make this client wait, by a quota" : "";
  std::string message = !lane_->paused_topics().empty() ? lane_->paused_topics()
                        : !lane_->slow().empty()        ? lane_->slow()
                                                        : throttled;
  if (message == degraded_)
    return;
  degraded_ = message;
  reporter->degraded(std::move(message));
}

}  // namespace outbox
