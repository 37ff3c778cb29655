/*
 * kafka_sink.cpp: which lane an event goes through, and whether the sink as a whole is down, or a part of it. A lane
 * that is down is an outage of the sink only if no other lane works: the circuit would stop these too.
 */
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

KafkaSink::KafkaSink(std::shared_ptr<const KafkaConfig> config, std::shared_ptr<Reporter> reporter,
                     std::shared_ptr<KafkaExtraProducers> extra_producers)
    : KafkaShared(std::move(config), std::move(reporter)), extra_producers_(std::move(extra_producers)) {
  lanes_.push_back(std::make_unique<KafkaLane>(static_cast<KafkaShared &>(*this)));
}

KafkaSink::~KafkaSink() {
  extra_producers_->give_back(lanes_.size() + opening_.size() - 1);
  lanes_.clear();
  opening_.clear();
  old_producers.finish(Time::max());
}

/* ---- events ---- */

size_t KafkaSink::held() const {
  size_t n = 0;
  for (const auto &lane : lanes_)
    n += lane->held();
  return n;
}

size_t KafkaSink::in_flight() const {
  size_t n = 0;
  for (const auto &lane : lanes_)
    n += lane->in_flight();
  return n;
}

uint32_t KafkaSink::credit() const {
  if (state_ == State::Changing)
    return 0;
  if (lanes_.size() == 1)
    return lanes_.front()->credit();
  size_t events = 0, bytes = 0;
  for (const auto &lane : lanes_) {
    events += lane->held();
    bytes += lane->bytes();
  }
  if (events >= config->max_messages() || bytes >= config->max_bytes())
    return 0;
  return static_cast<uint32_t>(config->max_messages() - events);
}

KafkaLane &KafkaSink::lane_of(const ob_event &event) {
  if (event.key_hash != 0)
    return *lanes_[kafka_hash(event.key) % lanes_.size()];
  for (size_t i = 0; i < lanes_.size(); i++)
    if (KafkaLane &lane = *lanes_[next_++ % lanes_.size()]; lane.credit() > 0 && !lane.is_delayed())
      return lane;
  return *lanes_[next_++ % lanes_.size()];
}

size_t KafkaSink::partitions_seen() const {
  size_t partitions = 0;
  for (const auto &lane : lanes_)
    partitions = std::max(partitions, lane->partitions_seen());
  return partitions;
}

std::span<const uint32_t> KafkaSink::order(const ob_event *events, size_t n) {
  return order_.of(events, n, partitions_seen(), lanes_.size());
}

Submitted KafkaSink::submit(const ob_event &event) {
  constexpr std::chrono::seconds pause{1};
  if (credit() == 0)
    return false;
  if (lanes_.size() == 1)
    return lanes_.front()->submit(event, false);
  KafkaLane &lane = lane_of(event);
  const bool has_its_share =
      lane.held() >= config->max_messages() / lanes_.size() || lane.bytes() >= config->max_bytes() / lanes_.size();
  if (has_its_share && lane.is_delayed())
    return Completion{{.outcome = Outcome::Deferred,
                       .error = "waits for one of the sink's producers, which sends nothing now and has its share of "
                                "events" +
                                (lane.outage() ? ": " + lane.outage()->text : std::string()),
                       .reason = lane.outage() ? lane.outage()->reason : OB_REASON_NONE,
                       .retry_after_ms = lane.topics().wait(pause, std::chrono::steady_clock::now()).count()},
                      event.ticket,
                      event.key_hash};
  return lane.submit(event, true);
}

void KafkaSink::keep_acknowledgements(bool keep) {
  keeps_offsets = keep;
  for (Lanes *lanes : {&lanes_, &opening_})
    for (const auto &lane : *lanes)
      lane->keep_offsets(keep);
}

void KafkaSink::flush() {
  for (const auto &lane : lanes_)
    lane->flush();
  used_at_ = std::chrono::steady_clock::now();
  check_stall(used_at_);
}

void KafkaSink::poll() {
  for (Lanes *lanes : {&lanes_, &opening_})
    for (const auto &lane : *lanes)
      lane->poll();
  const Time now = std::chrono::steady_clock::now();
  look_at_number(now);
  if (const KafkaLane *lane = is_down || any_works() ? nullptr : lane_with_outage())
    report_down(*lane->outage());
  check_stall(now);
  report_degraded();
}

Sink::Time KafkaSink::check_at() const {
  Time at = std::min(stall_check_at_, number_check_at_);
  for (const Lanes *lanes : {&lanes_, &opening_})
    for (const auto &lane : *lanes)
      at = std::min(at, lane->check_at());
  return at;
}

void KafkaSink::release_queued() {
  for (const auto &lane : lanes_)
    lane->release_queued();
}

void KafkaSink::abandon() {
  for (const auto &lane : lanes_)
    lane->abandon();
}

/* ---- its state ---- */

bool KafkaSink::any_works() const {
  return std::any_of(lanes_.begin(), lanes_.end(), [](const auto &lane) { return lane->works(); });
}

const KafkaLane *KafkaSink::lane_with_outage() const {
  for (const auto &lane : lanes_)
    if (lane->outage() && lane->held() > 0)
      return lane.get();
  return nullptr;
}

void KafkaSink::on_acknowledged(size_t events, size_t bytes, std::chrono::nanoseconds in_flight, Time now) {
  is_down = false; /* the event's outcome closes the circuit */
  has_delivered = true;
  progress_at_ = now;
  stall_detector_.on_acknowledgement(now);
  growth_.acknowledged(events, bytes, in_flight);
}

void KafkaSink::report_down(const KafkaOutage &outage) {
  is_down = true;
  reporter->down(outage.text, outage.reason);
}

bool KafkaSink::on_down(const KafkaLane &lane) {
  const bool is_opening =
      std::any_of(opening_.begin(), opening_.end(), [&](const auto &each) { return each.get() == &lane; });
  if (is_opening || any_works())
    return false;
  report_down(*lane.outage());
  return true;
}

void KafkaSink::on_up(Time now) {
  stall_detector_.on_reconnection(now); /* nothing could be acknowledged before */
  if (std::exchange(is_down, false))
    reporter->up();
}

void KafkaSink::on_topic_paused(const KafkaLane &lane, const std::string &topic, const std::string &reason) {
  for (const auto &each : lanes_)
    if (const KafkaTopics::Topic *known = each.get() == &lane ? nullptr : each->topics().find(topic))
      if (known->reason == reason)
        return; /* it was told */
  reporter->log(OB_LOG_WARNING, reason + "; its events wait");
}

void KafkaSink::on_topic_resumed(const std::string &topic) {
  for (const auto &lane : lanes_)
    lane->end_pause(topic);
  const std::string about = about_topic(topic);
  reporter->log(OB_LOG_INFO, about + "is written again");
  reporter->resumed(about);
}

std::string KafkaSink::slow_part() const {
  for (const auto &lane : lanes_)
    if (!lane->slow().empty())
      return lane->slow();
  return {};
}

/* Detects brokers that are connected but do not respond; librdkafka has no event for that. */
void KafkaSink::check_stall(Time now) {
  size_t waiting = 0;
  for (const auto &lane : lanes_)
    waiting += lane->is_down() ? 0 : lane->in_flight(); /* an outage is already reported */
  if (waiting == 0) {
    stall_check_at_ = Time::max();
  } else if (stall_detector_.is_stalled(waiting, now)) {
    stall_check_at_ = now + StallDetector::stall_after / 6; /* report again while it lasts */
    std::string text = "no broker has acknowledged anything for " +
                       std::to_string(StallDetector::stall_after.count()) + " s, and " +
                       (waiting == 1 ? "1 event waits for it" : std::to_string(waiting) + " events wait for it");
    if (const std::string slow = slow_part(); !slow.empty())
      text += "; " + slow;
    reporter->down(std::move(text), OB_REASON_TIMEOUT);
  } else if (stall_check_at_ == Time::max() || stall_check_at_ <= now) {
    stall_check_at_ = stall_detector_.stalled_at();
  }
}

/* Reports whether a part of the sink has a problem while the rest works. */
void KafkaSink::report_degraded() {
  std::string down, throttled;
  bool topics_changed = std::exchange(lanes_closed_, false);
  for (const auto &lane : lanes_)
    topics_changed |= lane->take_topics_changed();
  if (topics_changed) {
    KafkaTopics::Paused paused;
    for (const auto &lane : lanes_)
      lane->topics().add_paused(paused);
    paused_ = KafkaTopics::summary(paused);
  }
  for (const auto &lane : lanes_) {
    if (lane->outage() && lane->held() > 0 && !is_down && down.empty())
      down = "a part of the events waits, because one of " + std::to_string(lanes_.size()) +
             " producers sends nothing: " + lane->outage()->text;
    if (lane->is_throttled())
      throttled = "throttled: the brokers make this client wait, by a quota";
  }
  const std::string slow = slow_part();
  std::string message = !paused_.empty() ? paused_ : !down.empty() ? down : !slow.empty() ? slow : throttled;
  if (message == degraded_)
    return;
  degraded_ = message;
  reporter->degraded(std::move(message));
}

}  // namespace outbox
