/*
 * answers.cpp: what the broker's frames mean for messages in flight. Of a message that it cannot route, RabbitMQ
 * sends basic.return first and then a confirm like that of any other; the return overrides it. A channel that the
 * broker closes takes all messages in flight with it, whichever of them is to blame: they are sent again one at a
 * time.
 */
#include <algorithm>

#include "delivery/base/clean_text.h"
#include "delivery/base/until_memory.h"
#include "publisher.h"

namespace outbox::rabbitmq {
namespace {

std::string said(const amqp_bytes_t &text) {
  return peer_text(view(text));
}

}  // namespace

/* The start of every text about an exchange: deferred events are found by it when the exchange is there. */
std::string Publisher::about_exchange(const std::string &exchange) const {
  return "exchange " + in_quotes(exchange) + " ";
}

std::string Publisher::missing_text(const std::string &exchange) const {
  return about_exchange(exchange) + "does not exist in vhost " + in_quotes(config_->connecting.vhost) +
         ": declare it, or correct option exchange";
}

void Publisher::read() {
  for (int n = 0; n < PeerConnection::reads_in_turn && connection_->receive(); n++) {
    received_at_ = Clock::now();
    amqp_frame_t frame;
    while (connection_->next(frame))
      on_frame(frame);
    if (!confirmed_.empty()) {
      stall_detector_.on_acknowledgement(received_at_);
      handover_.succeed(confirmed_);
      confirmed_.clear();
    }
  }
}

void Publisher::on_frame(const amqp_frame_t &frame) {
  if (frame.frame_type == AMQP_FRAME_HEADER && frame.channel == publishing)
    on_returned_properties(frame);
  if (frame.frame_type != AMQP_FRAME_METHOD)
    return;
  if (frame.channel == 0)
    on_connection(frame);
  else if (frame.channel == publishing)
    on_publishing(frame);
  else if (frame.channel == asking)
    on_asking(frame);
}

void Publisher::on_connection(const amqp_frame_t &frame) {
  if (auto *close = as<amqp_connection_close_t>(frame)) {
    throw connection_->closed_by_broker(*close);
  } else if (auto *blocked = as<amqp_connection_blocked_t>(frame)) {
    blocked_ = "the broker has blocked publishing: " + said(blocked->reason) +
               "; it goes on by itself when the alarm is over (rabbitmqctl status shows alarms)";
    report_down(blocked_, OB_REASON_BROKER);
    handover_.halt(blocked_);
  } else if (as<amqp_connection_unblocked_t>(frame) && !blocked_.empty()) {
    blocked_.clear();
    stall_detector_.on_acknowledgement(Clock::now());
    report_up();
  }
}

// ---- the publishing channel ----

void Publisher::on_publishing(const amqp_frame_t &frame) {
  if (auto *ack = as<amqp_basic_ack_t>(frame))
    on_confirm(ack->delivery_tag, ack->multiple, true);
  else if (auto *nack = as<amqp_basic_nack_t>(frame))
    on_confirm(nack->delivery_tag, nack->multiple, false);
  else if (auto *returned = as<amqp_basic_return_t>(frame))
    on_return(*returned);
  else if (auto *close = as<amqp_channel_close_t>(frame))
    on_channel_closed(*close);
}

void Publisher::on_confirm(uint64_t tag, bool multiple, bool stored) {
  auto first = multiple ? unconfirmed_.begin() : unconfirmed_.find(tag);
  auto last = multiple ? unconfirmed_.upper_bound(tag) : first == unconfirmed_.end() ? first : std::next(first);
  while (first != last) {
    until_memory([&] { end_confirmed(first->second, stored); });
    careful_left_ -= careful_left_ > 0;
    first = unconfirmed_.erase(first);
  }
}

/* May be called again if it throws std::bad_alloc. */
void Publisher::end_confirmed(const Unconfirmed &message, bool stored) {
  if (stored && message.returned.empty()) {
    if (handover_.keeps_acknowledgements())
      handover_.acknowledged(message.serial, text_if_memory("confirmed by ", connection_->peer()));
    confirmed_.push_back(message.serial);
    return;
  }
  stall_detector_.on_acknowledgement(received_at_);
  if (stored) {
    handover_.fail(message.serial, Outcome::Refused, message.returned, OB_REASON_TOPIC);
    return;
  }
  handover_.fail(message.serial, Outcome::RetryBlameSink,
                 "the broker has refused the message (basic.nack): a queue behind exchange " +
                     in_quotes(message.exchange) + ", routing key " + in_quotes(message.routing_key) +
                     ", is full (x-max-length with reject-publish), or could not store it",
                 OB_REASON_BROKER);
}

void Publisher::on_return(const amqp_basic_return_t &returned) {
  returned_ = std::to_string(returned.reply_code) + " " + said(returned.reply_text) +
              ": no queue is bound to exchange " + in_quotes(view(returned.exchange)) + " for routing key " +
              in_quotes(view(returned.routing_key)) +
              ": bind a queue, or correct the options exchange and routing_key";
}

/* RabbitMQ returns messages in the order in which they were published, before their confirms: it is one of the
 * first. */
void Publisher::on_returned_properties(const amqp_frame_t &frame) {
  const std::optional<std::string_view> id = returned_id(frame);
  if (!id || returned_.empty())
    return;
  for (auto &[tag, message] : unconfirmed_)
    if (message.returned.empty() && *id == std::string_view(message.id.data(), message.id.size())) {
      message.returned = std::move(returned_);
      break;
    }
  returned_.clear();
}

/* Why a channel was closed on which this message was alone. */
static std::pair<Outcome, ob_reason> blame(uint16_t code) {
  switch (code) {
  case AMQP_ACCESS_REFUSED:
    return {Outcome::Refused, OB_REASON_AUTH};
  case AMQP_PRECONDITION_FAILED: /* larger than max_message_size */
    return {Outcome::Rejected, OB_REASON_INVALID};
  default:
    return {Outcome::RetryBlameSink, OB_REASON_BROKER};
  }
}

void Publisher::on_channel_closed(const amqp_channel_close_t &close) {
  std::string text = std::to_string(close.reply_code) + " " + said(close.reply_text);
  reporter_->log(OB_LOG_WARNING, "the broker has closed the channel: " + text);
  connection_->close_channel_ok(publishing);
  connection_->open_publishing();
  bool missing = close.reply_code == AMQP_NOT_FOUND;
  if (missing)
    exchanges_.forget_answers();
  else if (unconfirmed_.size() > 1)
    careful_left_ = unconfirmed_.size();
  bool to_blame = !missing && unconfirmed_.size() == 1;
  careful_left_ -= to_blame && careful_left_ > 0;
  auto [outcome, reason] = to_blame ? blame(close.reply_code) : std::pair(Outcome::Returned, OB_REASON_NONE);
  for (const auto &[tag, message] : unconfirmed_) {
    std::string why = text_if_memory(to_blame ? "the broker refuses the message: "
                                              : "the broker has closed the channel while it was in flight: ",
                                     text);
    if (outcome == Outcome::Rejected)
      handover_.refuse(message.serial, std::move(why), reason);
    else
      handover_.fail(message.serial, outcome, std::move(why), reason);
  }
  unconfirmed_.clear();
  last_tag_ = 0;
  returned_.clear();
}

// ---- the channel for questions ----

void Publisher::on_asking(const amqp_frame_t &frame) {
  if (as<amqp_exchange_declare_ok_t>(frame)) {
    if (asking_)
      on_asked(true);
  } else if (auto *close = as<amqp_channel_close_t>(frame)) {
    const bool there = close->reply_code != AMQP_NOT_FOUND;
    connection_->close_channel_ok(asking);
    connection_->open_asking();
    /* Without the right to ask, publishing shows whether it is there. */
    if (asking_)
      on_asked(there);
  }
}

void Publisher::on_asked(bool there) {
  const std::string exchange = std::move(asked_);
  asking_ = false;
  stall_detector_.on_acknowledgement(received_at_);
  if (there ? exchanges_.found(exchange) : exchanges_.missing(exchange, Clock::now())) {
    if (there) {
      reporter_->log(OB_LOG_INFO, about_exchange(exchange) + "is there");
      reporter_->resumed(about_exchange(exchange));
    } else {
      reporter_->log(OB_LOG_WARNING, missing_text(exchange) + "; its events wait");
    }
    report_degraded();
  }
  end_waiting(exchange, there);
  ask_next();
}

void Publisher::report_degraded() {
  std::string problem = exchanges_.summary([this](const std::string &exchange) { return missing_text(exchange); });
  if (problem == degraded_)
    return;
  degraded_ = problem;
  reporter_->degraded(std::move(problem));
}

}  // namespace outbox::rabbitmq
