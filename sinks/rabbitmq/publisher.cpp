/*
 * publisher.cpp: connecting, and a message's way to the broker. answers.cpp has the way back, refusals.cpp what is
 * refused for a time.
 *
 * Many messages are encoded into one buffer and sent together, so the socket is used a few times per thousand
 * messages. No more than `most_unsent` bytes are encoded ahead of a broker that does not read.
 */
#include "publisher.h"

#include <algorithm>
#include <cerrno>

namespace outbox::rabbitmq {

using std::chrono::milliseconds;
using std::chrono::seconds;

static constexpr size_t most_unsent = 262'144;

/* A message to an exchange that was refused may have reached some of its queues: so the first try after a success is
 * not as early as with a single stream. */
static RefusedTargets::Limits target_limits() {
  RefusedTargets::Limits limits;
  limits.shortest = milliseconds(100);
  return limits;
}

Publisher::Publisher(std::shared_ptr<const RabbitConfig> config, std::shared_ptr<Reporter> reporter)
    : PeerThread(config->options, std::move(reporter)), config_(std::move(config)),
      queue_(reporter_, config_->options.max_in_flight), targets_(target_limits()) {
  launch();
}

Publisher::~Publisher() {
  shut_down(queue_.event());
}

void Publisher::run_once() {
  if (!connection_) {
    if (Clock::now() >= connect_at() || queue_.has_work())
      connect();
    else
      wait_until(look_at(), queue_.event(), nullptr);
    return;
  }
  pump();
  look_at_targets();
  const bool any_taken = connection_->flush();
  const Time now = Clock::now();
  if (any_taken)
    sent_at_ = now;
  stall_detector_.on_flush(any_taken, connection_->unsent() > 0 ? connection_->queued() : 0, now);
  wait_until(look_at(), queue_.event(), connection_.get());
  read();
  check_time();
}

// ---- the connection ----

void Publisher::connect() {
  connection_ = open<Connection>(config_->options);
  sent_at_ = received_at_ = Clock::now();
  reporter_->log(OB_LOG_INFO, "connected to " + connection_->peer() + ", " + connection_->product());
  report_up();
}

void Publisher::lose(const PeerError &error) {
  succeed(queue_, confirmed_);
  connection_.reset();
  unconfirmed_.clear();
  last_tag_ = 0;
  returned_.clear();
  blocked_.clear();
  tried_.reset();
  last_try_tag_ = 0;
  waiting_.clear();
  to_ask_.clear();
  asking_ = false;
  there_.clear();
  exchanges_.forget_in_flight();
  targets_.forget_in_flight();
  connect_later();
  return_all(queue_, error);
}

/* A connection that sends nothing sends a heartbeat; one whose socket is full has something to send already. */
Publisher::Time Publisher::heartbeat_at() const {
  return connection_->unsent() > 0 ? Time::max() : sent_at_ + milliseconds(connection_->heartbeat()) / 2;
}

/* When connect() or check_time() has something to do. */
Publisher::Time Publisher::look_at() const {
  Time at = connect_at();
  if (connection_) {
    at = std::min(
        {exchanges_.look_at(), targets_.look_at(), heartbeat_at(), received_at_ + 2 * connection_->heartbeat()});
    if (in_flight() > 0 && blocked_.empty())
      at = std::min(at, stall_detector_.stalled_at());
  }
  return at;
}

void Publisher::check_time() {
  Time now = Clock::now();
  if (now - received_at_ >= 2 * connection_->heartbeat())
    throw PeerError("connect", OB_REASON_TIMEOUT,
                    "the broker " + connection_->peer() + " has sent nothing for " +
                        std::to_string(2 * connection_->heartbeat().count()) + " s, no heartbeat either");
  if (now >= heartbeat_at()) {
    append_heartbeat(connection_->out());
    sent_at_ = now;
  }
  if (blocked_.empty() && stall_detector_.is_stalled(in_flight(), now) &&
      !stall_detector_.drains(connection_->queued(), now))
    throw PeerError("connect", OB_REASON_TIMEOUT,
                    "the broker " + connection_->peer() + " has confirmed nothing for " +
                        std::to_string(StallDetector::stall_after.count()) + " s, and " +
                        std::to_string(in_flight()) +
                        (in_flight() == 1 ? " message waits for it" : " messages wait for it"));
}

// ---- messages out ----

void Publisher::pump() {
  if (!blocked_.empty()) {
    if (queue_.has_work()) { /* a probe of the circuit */
      report_down(blocked_, OB_REASON_BROKER);
      queue_.halt(blocked_);
    }
    return;
  }
  uint64_t serial = 0;
  while (connection_->unsent() < most_unsent) {
    std::optional<Message> message = queue_.start(careful_left_ > 0, serial);
    if (!message)
      return;
    start(serial, std::move(*message));
  }
}

void Publisher::start(uint64_t serial, Message message) {
  const std::string exchange = message.exchange;
  if (exchange.empty() || there_.contains(exchange)) { /* the default exchange is always there */
    start_at_target(serial, message);
  } else if (exchanges_.look_up(exchange, Clock::now()) == RefusedTargets::Answer::Defer) {
    defer_missing(serial, exchange);
  } else {
    if (!waiting_.contains(exchange)) {
      to_ask_.push_back(exchange);
      ask_next();
    }
    waiting_[exchange].push_back({serial, std::move(message)});
  }
}

void Publisher::start_at_target(uint64_t serial, Message &message) {
  using Answer = RefusedTargets::Answer;
  if (!targets_.any()) {
    publish(serial, message, Answer::Send);
    return;
  }
  const std::string target = target_of(message.exchange, message.routing_key);
  const Answer answer = targets_.look_up(target, Clock::now());
  const bool is_busy = answer == Answer::Try && tried_; /* only of one message it is known that it is to blame */
  if (is_busy)
    targets_.ended(target, true);
  if (is_busy || answer == Answer::Wait || answer == Answer::Defer) {
    const auto delay = targets_.wait(target, Clock::now());
    queue_.fail(serial, Outcome::Deferred, targets_.why(target), targets_.reason(target), delay.count());
    return;
  }
  publish(serial, message, answer);
}

void Publisher::publish(uint64_t serial, Message &message, RefusedTargets::Answer how) {
  const bool counted = how != RefusedTargets::Answer::Send, tries = how == RefusedTargets::Answer::Try;
  if (size_t size = message.properties.size() + properties_overhead + frame_overhead;
      size > connection_->frame_max()) {
    if (counted)
      targets_.ended(target_of(message.exchange, message.routing_key), counted);
    queue_.fail(serial, Outcome::Rejected,
                "headers are too large: with the other properties they have " + std::to_string(size) +
                    " bytes, and frame_max of the broker is " + std::to_string(connection_->frame_max()),
                OB_REASON_TOO_LARGE);
    return;
  }
  const size_t before = in_flight();
  Unconfirmed &entry = tries ? tried_.emplace() : unconfirmed_.try_emplace(last_tag_ + 1).first->second;
  append_publish(tries ? trying : publishing, message.exchange, message.routing_key, message.properties, message.body,
                 config_->options.mandatory, connection_->frame_max(), connection_->out());
  stall_detector_.on_submit(before, Clock::now());
  ++(tries ? last_try_tag_ : last_tag_);
  queue_.forget_bytes(serial);
  entry = {serial, message.id, std::move(message.exchange), std::move(message.routing_key), counted, {}};
}

}  // namespace outbox::rabbitmq
