/*
 * publisher.cpp: a message's way to the broker. answers.cpp has the way back, refusals.cpp what is refused for a
 * time.
 */
#include "publisher.h"

#include <algorithm>

namespace outbox::rabbitmq {

using std::chrono::milliseconds;

/* A message to an exchange that was refused may have reached some of its queues: so the first try after a success is
 * not as early as with a single stream. */
static RefusedTargets::Limits target_limits() {
  RefusedTargets::Limits limits;
  limits.shortest = milliseconds(100);
  return limits;
}

Publisher::Publisher(std::shared_ptr<const RabbitConfig> config, std::shared_ptr<Reporter> reporter)
    : PeerSender(std::move(config), std::move(reporter), target_limits()) {}

// ---- the connection ----

void Publisher::forget_in_flight() {
  unconfirmed_.clear();
  last_tag_ = 0;
  returned_.clear();
  tried_.reset();
  last_try_tag_ = 0;
  waiting_.clear();
  to_ask_.clear();
  asking_ = false;
  there_.clear();
  exchanges_.forget_in_flight();
}

size_t Publisher::in_flight() const {
  return blocked_.empty() ? unconfirmed_.size() + (tried_ ? 1 : 0) + (asking_ ? 1 : 0) : 0;
}

/* A connection that sends nothing sends a heartbeat; one whose socket is full has something to send already. */
Publisher::Time Publisher::heartbeat_at() const {
  return connection_->unsent() > 0 ? Time::max() : sent_at_ + milliseconds(connection_->heartbeat()) / 2;
}

Publisher::Time Publisher::look_at() const {
  return std::min(
      {PeerSender::look_at(), exchanges_.look_at(), heartbeat_at(), received_at_ + 2 * connection_->heartbeat()});
}

void Publisher::check_time(Time now) {
  if (now - received_at_ >= 2 * connection_->heartbeat())
    throw PeerError("connect", OB_REASON_TIMEOUT,
                    "the broker " + connection_->peer() + " has sent nothing for " +
                        std::to_string(2 * connection_->heartbeat().count()) + " s, no heartbeat either");
  if (now >= heartbeat_at()) {
    append_heartbeat(connection_->out());
    sent_at_ = now;
  }
  check_stalled(now);
}

// ---- messages out ----

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
    defer(serial, target);
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
