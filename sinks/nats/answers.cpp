/*
 * answers.cpp: what the server's operations mean for messages in flight. Each has an inbox of its own, whose last
 * token is its number. Of a subject that the user may not publish to, the server only says the name: its oldest
 * message in flight is meant.
 */
#include <algorithm>

#include "acknowledgement.h"
#include "delivery/base/clean_text.h"
#include "publisher.h"

namespace outbox::nats {
namespace {

/* A subject in an error of the server, which quotes it as Go does; empty if there is none. */
std::string quoted_subject(std::string_view error) {
  size_t from = error.find('"'), to = error.rfind('"');
  std::string subject;
  if (from == error.npos || to == from)
    return subject;
  for (size_t at = from + 1; at < to; at++) {
    if (error[at] == '\\' && at + 1 < to)
      at++;
    subject += error[at];
  }
  return subject;
}

}  // namespace

std::string Publisher::about(const std::string &subject) const {
  return "subject \"" + clean_text(subject) + "\" ";
}

void Publisher::on_received() {
  pinged_ = false;
  Operation operation;
  while (connection_->next(operation)) {
    if (operation.kind == Operation::Kind::Message)
      on_message(operation);
    else if (operation.kind == Operation::Kind::Error) /* one after which the connection stays */
      on_permission_error(operation.text);
  }
}

/* The server has answered the message with this number. */
void Publisher::note_answer(uint64_t number) {
  stall_detector_.on_acknowledgement(received_at_);
  acknowledged_at_ = received_at_;
  acknowledged_up_to_ = std::max(acknowledged_up_to_, number);
}

void Publisher::on_message(const Operation &message) {
  auto at = in_flight_.find(connection_->number_of(message.subject));
  if (at == in_flight_.end())
    return; /* it was given up */
  note_answer(at->first);
  Acknowledgement answer = read_acknowledgement(message);
  if (answer.outcome == Outcome::Sent) {
    on_stored(at->second, message.text, answer.duplicate);
  } else if (answer.outcome == Outcome::Deferred) {
    refuse(at->second, answer.why, answer.reason);
  } else {
    queue_.refuse(at->second.serial, answer.why, answer.reason);
    targets_.ended(at->second.subject, at->second.counted);
  }
  in_flight_.erase(at);
}

void Publisher::on_stored(const InFlight &message, std::string_view answer, bool duplicate) {
  if (queue_.keeps_acknowledgements())
    queue_.acknowledged(message.serial, place_of(answer));
  passed(message.subject, message.counted);
  if (duplicate && message.is_new)
    on_foreign_duplicate(answer);
  acknowledged_.push_back(message.serial);
}

/* The stream has dropped a message that was sent for the first time: another publisher has used its Nats-Msg-Id. */
void Publisher::on_foreign_duplicate(std::string_view answer) {
  if (!told_of_duplicate_)
    reporter_->log(OB_LOG_WARNING, "an event was dropped as a duplicate, though it is sent for the first time (" +
                                       place_of(answer) + "): another publisher has used its Nats-Msg-Id");
  told_of_duplicate_ = true;
  reporter_->failed(OB_REASON_DUPLICATE, 0);
}

void Publisher::refuse(const InFlight &message, const std::string &why, ob_reason reason) {
  PeerSender::refuse(message.serial, message.subject, why, reason, message.counted);
}

void Publisher::on_permission_error(std::string_view error) {
  const std::string subject = quoted_subject(error);
  for (auto at = in_flight_.begin(); at != in_flight_.end(); ++at) {
    if (at->second.subject != subject)
      continue;
    note_answer(at->first);
    refuse(at->second,
           "is not allowed to be published to by " + config_->options.who() + ": correct the user's permissions",
           OB_REASON_AUTH);
    in_flight_.erase(at);
    return;
  }
  reporter_->log(OB_LOG_WARNING, "the server says: " + peer_text(error));
}

/* No stream has answered for messages, while later ones are acknowledged: their subject has another subscriber, so
 * the server does not say that there is no stream. The others may still be on their way. */
void Publisher::give_up_unanswered(Time now) {
  constexpr std::chrono::seconds recent{5};
  while (!in_flight_.empty() && acknowledged_up_to_ > in_flight_.begin()->first && now - acknowledged_at_ < recent &&
         now - in_flight_.begin()->second.sent_at >= StallDetector::stall_after)
    give_up_oldest();
}

void Publisher::give_up_oldest() {
  auto at = in_flight_.begin();
  refuse(at->second,
         "is acknowledged by no stream within 30 s: create one for it, set no_ack of its stream to false, or "
         "correct option subject",
         OB_REASON_TOPIC);
  in_flight_.erase(at);
}

}  // namespace outbox::nats
