/*
 * publisher.cpp: connecting, and a message's way to the broker. answers.cpp has the way back.
 *
 * Many messages are encoded into one buffer and sent together, so the socket is used a few times per thousand
 * messages. No more than `most_unsent` bytes are encoded ahead of a broker that does not read.
 */
#include "publisher.h"

#include <algorithm>
#include <cerrno>

#include "delivery/base/until_memory.h"

namespace outbox::rabbitmq {

using std::chrono::milliseconds;
using std::chrono::seconds;

static constexpr size_t most_unsent = 262'144;

Publisher::Publisher(std::shared_ptr<const RabbitConfig> config, std::shared_ptr<Reporter> reporter)
    : PeerThread(config->connecting, std::move(reporter)), config_(std::move(config)),
      handover_(reporter_, config_->max_in_flight) {
  launch();
}

Publisher::~Publisher() {
  shut_down(handover_.event());
}

void Publisher::run_once() {
  if (!connection_) {
    if (Clock::now() >= connect_at() || handover_.has_work())
      connect();
    else
      wait_until(look_at(), handover_.event(), nullptr);
    return;
  }
  pump();
  const bool any_taken = connection_->flush();
  const Time now = Clock::now();
  if (any_taken)
    sent_at_ = now;
  stall_detector_.on_flush(any_taken, connection_->unsent() > 0 ? connection_->queued() : 0, now);
  wait_until(look_at(), handover_.event(), connection_.get());
  read();
  check_time();
}

// ---- the connection ----

void Publisher::connect() {
  connection_ = open<Connection>(config_->connecting);
  sent_at_ = received_at_ = Clock::now();
  reporter_->log(OB_LOG_INFO, "connected to " + connection_->peer() + ", " + connection_->product());
  report_up();
}

/* May be called again if it throws std::bad_alloc. */
void Publisher::lose(const Trouble &trouble) {
  std::string text = trouble.text();
  handover_.succeed(confirmed_);
  connection_.reset();
  unconfirmed_.clear();
  last_tag_ = 0;
  confirmed_.clear();
  returned_.clear();
  blocked_.clear();
  waiting_.clear();
  to_ask_.clear();
  asking_ = false;
  exchanges_.forget_answers();
  connect_later();
  if (!handover_.lost(text, trouble.reason))
    report_down(text, trouble.reason);
}

/* A connection that sends nothing sends a heartbeat; one whose socket is full has something to send already. */
Publisher::Time Publisher::heartbeat_at() const {
  return connection_->unsent() > 0 ? Time::max() : sent_at_ + milliseconds(connection_->heartbeat()) / 2;
}

/* When connect() or check_time() has something to do. */
Publisher::Time Publisher::look_at() const {
  Time at = connect_at();
  if (connection_) {
    at = std::min({exchanges_.look_at(), heartbeat_at(), received_at_ + 2 * connection_->heartbeat()});
    if ((!unconfirmed_.empty() || asking_) && blocked_.empty())
      at = std::min(at, stall_detector_.stalled_at());
  }
  return at;
}

void Publisher::check_time() {
  Time now = Clock::now();
  if (exchanges_.forget_unused(now))
    report_degraded();
  if (now - received_at_ >= 2 * connection_->heartbeat())
    throw Trouble("connect", OB_REASON_TIMEOUT,
                  "the broker " + connection_->peer() + " has sent nothing for " +
                      std::to_string(2 * connection_->heartbeat().count()) + " s, no heartbeat either");
  if (now >= heartbeat_at()) {
    append_heartbeat(connection_->out());
    sent_at_ = now;
  }
  size_t in_flight = unconfirmed_.size() + (asking_ ? 1 : 0);
  if (blocked_.empty() && stall_detector_.is_stalled(in_flight, now) &&
      !stall_detector_.drains(connection_->queued(), now))
    throw Trouble("connect", OB_REASON_TIMEOUT,
                  "the broker " + connection_->peer() + " has confirmed nothing for " +
                      std::to_string(StallDetector::stall_after.count()) + " s, and " + std::to_string(in_flight) +
                      (in_flight == 1 ? " message waits for it" : " messages wait for it"));
}

// ---- messages out ----

void Publisher::pump() {
  if (!blocked_.empty()) {
    if (handover_.has_work()) { /* a probe of the circuit */
      report_down(blocked_, OB_REASON_BROKER);
      handover_.halt(blocked_);
    }
    return;
  }
  uint64_t serial = 0;
  while (connection_->unsent() < most_unsent) {
    std::optional<Message> message = handover_.start(careful_left_ > 0, serial);
    if (!message)
      return;
    handover_.send_or_return(serial, [&] { start(serial, std::move(*message)); });
  }
}

/* If it throws, the message was not published and waits nowhere. */
void Publisher::start(uint64_t serial, Message message) {
  if (message.exchange.empty()) { /* the default exchange is always there */
    publish(serial, message);
    return;
  }
  const std::string exchange = message.exchange;
  switch (exchanges_.look_up(exchange, Clock::now())) {
  case Exchanges::Answer::There:
    publish(serial, message);
    break;
  case Exchanges::Answer::Missing:
    defer(serial, message);
    break;
  case Exchanges::Answer::Ask:
    until_memory([&] { to_ask_.push_back(exchange); });
    until_memory([&] { ask_next(); });
    [[fallthrough]];
  case Exchanges::Answer::Wait:
    waiting_[exchange].push_back({serial, std::move(message)});
    break;
  }
}

void Publisher::publish(uint64_t serial, Message &message) {
  if (size_t size = message.properties.size() + properties_overhead + frame_overhead;
      size > connection_->frame_max()) {
    handover_.fail(serial, Outcome::Rejected,
                   "headers are too large: with the other properties they have " + std::to_string(size) +
                       " bytes, and frame_max of the broker is " + std::to_string(connection_->frame_max()),
                   OB_REASON_TOO_LARGE);
    return;
  }
  auto [at, added] = unconfirmed_.try_emplace(last_tag_ + 1);
  try {
    append_publish(publishing, message.exchange, message.routing_key, message.properties, message.body,
                   connection_->frame_max(), connection_->out());
  } catch (...) {
    unconfirmed_.erase(at);
    throw;
  }
  stall_detector_.on_submit(unconfirmed_.size() - 1 + (asking_ ? 1 : 0), Clock::now());
  last_tag_++;
  handover_.forget_bytes(serial);
  at->second = {serial, message.id, std::move(message.exchange), std::move(message.routing_key), {}};
}

/* May be called again if it throws std::bad_alloc. */
void Publisher::ask_next() {
  if (asking_ || to_ask_.empty())
    return;
  amqp_exchange_declare_t declare{};
  declare.exchange = as_bytes(to_ask_.front());
  declare.type = amqp_cstring_bytes("direct"); /* a passive declaration does not compare it */
  declare.passive = 1;
  connection_->send(asking, AMQP_EXCHANGE_DECLARE_METHOD, &declare);
  stall_detector_.on_submit(unconfirmed_.size(), Clock::now());
  asking_ = true;
  asked_ = std::move(to_ask_.front());
  to_ask_.pop_front();
}

void Publisher::defer(uint64_t serial, const Message &message) {
  auto delay = exchanges_.wait(message.exchange, Clock::now());
  handover_.fail(serial, Outcome::Deferred, missing_text(message.exchange), OB_REASON_TOPIC, delay.count());
}

/* The answer about the exchange is there: its messages go on. */
void Publisher::end_waiting(const std::string &exchange, bool there) {
  auto waiting = waiting_.extract(exchange);
  if (waiting.empty())
    return;
  for (Waiting &each : waiting.mapped()) {
    handover_.send_or_return(each.serial, [&] {
      if (there)
        publish(each.serial, each.message);
      else
        defer(each.serial, each.message);
    });
  }
}

}  // namespace outbox::rabbitmq
