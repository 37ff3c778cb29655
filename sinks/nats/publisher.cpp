/* publisher.cpp: a message's way to the server. answers.cpp has the way back. */
#include "publisher.h"

#include <algorithm>

namespace outbox::nats {

using std::chrono::duration_cast;
using std::chrono::microseconds;
using std::chrono::milliseconds;

// ---- the connection ----

void Publisher::on_connected() {
  connected_at_us_ = duration_cast<microseconds>(std::chrono::system_clock::now().time_since_epoch()).count();
  told_of_duplicate_ = pinged_ = false;
  asked_at_ = acknowledged_at_ = {};
  if (size_t most = connection_->max_payload(); most < config_->options.max_message)
    reporter_->log(OB_LOG_WARNING, "max_payload of the server is " + std::to_string(most) +
                                       " bytes: set max_message to that, so that larger events are refused "
                                       "when they are enqueued");
}

void Publisher::forget_in_flight() {
  in_flight_.clear();
  waiting_.clear();
  n_waiting_ = 0;
}

Publisher::Time Publisher::look_at() const {
  Time at = std::min(PeerSender::look_at(), alive_at_ + config_->options.heartbeat * (pinged_ ? 2 : 1));
  if (connection_->unsent() < most_unsent)
    for (const auto &[subject, waiting] : waiting_)
      at = std::min(at, targets_.ready_at(subject));
  if (!in_flight_.empty())
    at = std::min({at, ask_at(),
                   std::max(in_flight_.begin()->second.sent_at + StallDetector::stall_after,
                            Clock::now() + milliseconds(500))}); /* give_up_unanswered() may have to wait */
  return at;
}

void Publisher::check_time(Time now) {
  const auto interval = config_->options.heartbeat;
  const bool stalled = stall_detector_.is_stalled(in_flight_.size(), now);
  const bool drains =
      (stalled || now - alive_at_ >= 2 * interval) && stall_detector_.drains(connection_->queued(), now);
  if (drains)
    alive_at_ = now;
  if (now - alive_at_ >= 2 * interval)
    throw PeerError("connect", OB_REASON_TIMEOUT,
                    "the server " + connection_->peer() + " has sent nothing for " +
                        std::to_string(2 * interval.count()) + " s, and answers no PING");
  if (!pinged_ && now - alive_at_ >= interval) {
    connection_->out() += "PING\r\n";
    pinged_ = true;
  }
  ask_if_unanswered(now);
  if (stalled && !drains && asked_at_ > in_flight_.begin()->second.sent_at && received_at_ > asked_at_) {
    stall_detector_.on_acknowledgement(now); /* the server answers, and no stream does */
    while (!in_flight_.empty() && now - in_flight_.begin()->second.sent_at >= StallDetector::stall_after / 2)
      give_up_oldest();
  } else if (stalled && !drains) {
    throw PeerError("connect", OB_REASON_TIMEOUT,
                    "no stream behind " + connection_->peer() + " has acknowledged a message for " +
                        std::to_string(StallDetector::stall_after.count()) + " s, and " +
                        std::to_string(in_flight_.size()) + (in_flight_.size() == 1 ? " waits" : " wait") +
                        ", of subject \"" + in_flight_.begin()->second.subject + "\" for example",
                    "is there a stream for it? Another subscriber of the subject hides that there is none");
  }
  give_up_unanswered(now);
}

/* Half the time after which nothing is acknowledged, the server is asked for a sign of life: one that answers has
 * read all messages before, so it is the stream that acknowledges nothing. */
Publisher::Time Publisher::ask_at() const {
  const bool asked = in_flight_.empty() || asked_at_ > in_flight_.begin()->second.sent_at;
  return asked ? Time::max() : in_flight_.begin()->second.sent_at + StallDetector::stall_after / 2;
}

void Publisher::ask_if_unanswered(Time now) {
  if (now < ask_at())
    return;
  connection_->out() += "PING\r\n";
  pinged_ = true;
  asked_at_ = now;
}

// ---- messages out ----

void Publisher::send() {
  for (auto at = waiting_.begin(); at != waiting_.end();)
    at = send_waiting(at);
  PeerSender::send();
}

void Publisher::start(uint64_t serial, Message message) {
  if (!targets_.any()) {
    publish(serial, message, false);
    return;
  }
  auto at = waiting_.try_emplace(message.subject).first;
  at->second.push_back({serial, std::move(message)});
  n_waiting_++;
  send_waiting(at);
}

/* Sends the messages of a subject as far as it may be tried. At most half of all messages in flight wait, so that the
 * rest is for other subjects. Returns the next subject. */
Publisher::WaitingMessages::iterator Publisher::send_waiting(WaitingMessages::iterator at) {
  using Answer = RefusedTargets::Answer;
  auto &[subject, messages] = *at;
  while (!messages.empty() && connection_->unsent() < most_unsent) {
    const Answer answer = targets_.look_up(subject, Clock::now());
    if (answer == Answer::Wait && 2 * n_waiting_ <= config_->options.max_in_flight)
      break;
    Waiting first = std::move(messages.front());
    messages.pop_front();
    n_waiting_--;
    if (answer == Answer::Wait || answer == Answer::Defer)
      defer(first.serial, subject);
    else
      publish(first.serial, first.message, answer != Answer::Send);
  }
  return messages.empty() ? waiting_.erase(at) : std::next(at);
}

void Publisher::publish(uint64_t serial, Message &message, bool counted) {
  if (message.data.size() > connection_->max_payload()) {
    targets_.ended(message.subject, counted);
    queue_.fail(serial, Outcome::Rejected,
                "message is too large: with its headers it has " + std::to_string(message.data.size()) +
                    " bytes, and max_payload of the server is " + std::to_string(connection_->max_payload()),
                OB_REASON_TOO_LARGE);
    return;
  }
  const Time now = Clock::now();
  auto at = in_flight_.try_emplace(in_flight_.end(), last_number_ + 1);
  append_publish(message.subject, connection_->inbox(last_number_ + 1), message.data, message.headers_size,
                 connection_->out());
  stall_detector_.on_submit(in_flight_.size() - 1, now);
  last_number_++;
  queue_.forget_bytes(serial);
  at->second = {serial, std::move(message.subject), now, counted, message.first_tried_after_us > connected_at_us_};
}

}  // namespace outbox::nats
