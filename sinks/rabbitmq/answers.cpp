/*
 * answers.cpp: what the broker's frames mean for messages in flight. Of a message that it cannot route, RabbitMQ
 * sends basic.return first and then a confirm like that of any other; the return overrides it. A channel that the
 * broker closes takes all messages in flight with it, whichever of them is to blame: they are sent again one at a
 * time.
 */
#include <algorithm>

#include "delivery/base/clean_text.h"
#include "publisher.h"

namespace outbox::rabbitmq {
namespace {

std::string said(const amqp_bytes_t &text) {
  return peer_text(view(text));
}

}  // namespace

void Publisher::on_received() {
  amqp_frame_t frame;
  while (connection_->next(frame))
    on_frame(frame);
  if (!acknowledged_.empty())
    stall_detector_.on_acknowledgement(received_at_);
}

void Publisher::on_frame(const amqp_frame_t &frame) {
  if (frame.frame_type == AMQP_FRAME_HEADER && (frame.channel == publishing || frame.channel == trying))
    on_returned_properties(frame);
  if (frame.frame_type != AMQP_FRAME_METHOD)
    return;
  if (frame.channel == 0)
    on_connection(frame);
  else if (frame.channel == publishing)
    on_publishing(frame);
  else if (frame.channel == trying)
    on_trying(frame);
  else if (frame.channel == asking)
    on_asking(frame);
}

void Publisher::on_connection(const amqp_frame_t &frame) {
  if (auto *close = as<amqp_connection_close_t>(frame)) {
    throw connection_->closed_by_broker(*close);
  } else if (auto *blocked = as<amqp_connection_blocked_t>(frame)) {
    block("the broker has blocked publishing: " + said(blocked->reason) +
          "; it goes on by itself when the alarm is over (rabbitmqctl status shows alarms)");
  } else if (as<amqp_connection_unblocked_t>(frame)) {
    unblock();
  }
}

// ---- the publishing channels ----

/* How the message could not be routed. */
static std::string text_of(const amqp_basic_return_t &returned) {
  return std::to_string(returned.reply_code) + " " + said(returned.reply_text) + ": no queue is bound to exchange " +
         in_quotes(view(returned.exchange)) + " for routing key " + in_quotes(view(returned.routing_key)) +
         ": bind a queue, correct the options exchange and routing_key, or, if the exchange returns what it delivers "
         "(x-delayed-message), set option mandatory 'false'";
}

void Publisher::on_publishing(const amqp_frame_t &frame) {
  if (auto *ack = as<amqp_basic_ack_t>(frame))
    on_confirm(ack->delivery_tag, ack->multiple, true);
  else if (auto *nack = as<amqp_basic_nack_t>(frame))
    on_confirm(nack->delivery_tag, nack->multiple, false);
  else if (auto *returned = as<amqp_basic_return_t>(frame))
    returned_[publishing] = text_of(*returned);
  else if (auto *close = as<amqp_channel_close_t>(frame))
    on_channel_closed(*close);
}

void Publisher::on_trying(const amqp_frame_t &frame) {
  auto *ack = as<amqp_basic_ack_t>(frame);
  auto *nack = as<amqp_basic_nack_t>(frame);
  if (auto *returned = as<amqp_basic_return_t>(frame)) {
    returned_[trying] = text_of(*returned);
  } else if (auto *close = as<amqp_channel_close_t>(frame)) {
    on_trying_closed(*close);
  } else if (tried_ &&
             ((ack && ack->delivery_tag == last_try_tag_) || (nack && nack->delivery_tag == last_try_tag_))) {
    end_confirmed(*tried_, ack != nullptr);
    careful_left_ -= careful_left_ > 0;
    tried_.reset();
  }
}

void Publisher::on_confirm(uint64_t tag, bool multiple, bool stored) {
  auto first = multiple ? unconfirmed_.begin() : unconfirmed_.find(tag);
  auto last = multiple ? unconfirmed_.upper_bound(tag) : first == unconfirmed_.end() ? first : std::next(first);
  while (first != last) {
    end_confirmed(first->second, stored);
    careful_left_ -= careful_left_ > 0;
    first = unconfirmed_.erase(first);
  }
}

void Publisher::end_confirmed(const Unconfirmed &message, bool stored) {
  if (stored)
    on_target_passed(message);
  if (stored && message.returned.empty()) {
    if (queue_.keeps_acknowledgements())
      queue_.acknowledged(message.serial, "confirmed by " + connection_->peer());
    acknowledged_.push_back(message.serial);
    return;
  }
  stall_detector_.on_acknowledgement(received_at_);
  if (stored) {
    queue_.fail(message.serial, Outcome::Refused, message.returned, OB_REASON_TOPIC);
    return;
  }
  on_target_refused(message,
                    "is refused (basic.nack): a queue behind it is full (x-max-length with reject-publish), or could "
                    "not store the message",
                    OB_REASON_BROKER);
}

/* RabbitMQ returns messages in the order in which they were published, before their confirms: it is one of the
 * first. */
void Publisher::on_returned_properties(const amqp_frame_t &frame) {
  const std::optional<std::string_view> id = returned_id(frame);
  std::string &returned = returned_[frame.channel];
  auto is_it = [&](const Unconfirmed &message) {
    return message.returned.empty() && *id == std::string_view(message.id.data(), message.id.size());
  };
  if (!id || returned.empty())
    return;
  if (frame.channel == trying) {
    if (tried_ && is_it(*tried_))
      tried_->returned = std::move(returned);
  } else if (auto at = std::find_if(unconfirmed_.begin(), unconfirmed_.end(),
                                    [&](const auto &each) { return is_it(each.second); });
             at != unconfirmed_.end()) {
    at->second.returned = std::move(returned);
  }
  returned.clear();
}

/* The broker has closed a channel on which this message was alone. */
void Publisher::end_refused(const Unconfirmed &message, uint16_t code, const std::string &text) {
  if (code == AMQP_ACCESS_REFUSED) {
    on_target_refused(message,
                      "may not be written by " + config_->options.who() + ": " + text + ": correct its permissions",
                      OB_REASON_AUTH);
    return;
  }
  std::string why = "the broker refuses the message: " + text;
  if (code == AMQP_PRECONDITION_FAILED) /* larger than max_message_size */
    queue_.refuse(message.serial, std::move(why), OB_REASON_INVALID);
  else
    queue_.fail(message.serial, Outcome::RetryBlameSink, std::move(why), OB_REASON_BROKER);
  on_target_ended(message);
}

void Publisher::on_channel_closed(const amqp_channel_close_t &close) {
  std::string text = std::to_string(close.reply_code) + " " + said(close.reply_text);
  reporter_->log(OB_LOG_WARNING, "the broker has closed the channel: " + text);
  connection_->close_channel_ok(publishing);
  connection_->open_publishing(publishing);
  const bool missing = close.reply_code == AMQP_NOT_FOUND;
  if (missing)
    there_.clear();
  else if (unconfirmed_.size() > 1)
    careful_left_ = unconfirmed_.size();
  const bool to_blame = !missing && unconfirmed_.size() == 1;
  careful_left_ -= to_blame && careful_left_ > 0;
  for (const auto &[tag, message] : unconfirmed_) {
    if (to_blame) {
      end_refused(message, close.reply_code, text);
      continue;
    }
    on_target_ended(message);
    queue_.fail(message.serial, Outcome::Returned,
                "the broker has closed the channel while it was in flight: " + text);
  }
  unconfirmed_.clear();
  last_tag_ = 0;
  returned_[publishing].clear();
}

/* It disturbs no message of another target. */
void Publisher::on_trying_closed(const amqp_channel_close_t &close) {
  const std::string text = std::to_string(close.reply_code) + " " + said(close.reply_text);
  connection_->close_channel_ok(trying);
  connection_->open_publishing(trying);
  if (tried_ && close.reply_code != AMQP_NOT_FOUND) {
    end_refused(*tried_, close.reply_code, text);
  } else if (tried_) {
    there_.erase(tried_->exchange);
    on_target_ended(*tried_);
    queue_.fail(tried_->serial, Outcome::Returned, text);
  }
  tried_.reset();
  last_try_tag_ = 0;
  returned_[trying].clear();
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

}  // namespace outbox::rabbitmq
