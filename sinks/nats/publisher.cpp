/*
 * publisher.cpp: connecting, and a message's way to the server. answers.cpp has the way back.
 *
 * Many messages are written into one buffer and sent together, so the socket is used a few times per thousand
 * messages. No more than `most_unsent` bytes are written ahead of a server that does not read.
 */
#include "publisher.h"

#include <algorithm>

namespace outbox::nats {

using std::chrono::duration_cast;
using std::chrono::microseconds;
using std::chrono::milliseconds;

static constexpr size_t most_unsent = 262'144;

Publisher::Publisher(std::shared_ptr<const NatsConfig> config, std::shared_ptr<Reporter> reporter)
    : PeerThread(config->options, std::move(reporter)), config_(std::move(config)),
      queue_(reporter_, config_->options.max_in_flight) {
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
  send_waiting();
  pump();
  look_at_subjects();
  const bool any_taken = connection_->flush();
  const Time now = Clock::now();
  if (stall_detector_.on_flush(any_taken, connection_->unsent() > 0 ? connection_->queued() : 0, now))
    alive_at_ = now;
  wait_until(look_at(), queue_.event(), connection_.get());
  read();
  check_time();
}

// ---- the connection ----

void Publisher::connect() {
  connection_ = open<Connection>(config_->options);
  received_at_ = alive_at_ = acknowledged_at_ = Clock::now();
  connected_at_us_ = duration_cast<microseconds>(std::chrono::system_clock::now().time_since_epoch()).count();
  told_of_duplicate_ = pinged_ = false;
  asked_at_ = {};
  reporter_->log(OB_LOG_INFO, "connected to " + connection_->peer() + ", " + connection_->product());
  if (size_t most = connection_->max_payload(); most < config_->options.max_message_bytes)
    reporter_->log(OB_LOG_WARNING, "max_payload of the server is " + std::to_string(most) +
                                       " bytes: set max_message_bytes to that, so that larger events are refused "
                                       "when they are enqueued");
  report_up();
}

void Publisher::lose(const PeerError &error) {
  succeed(queue_, stored_);
  connection_.reset();
  in_flight_.clear();
  waiting_.clear();
  n_waiting_ = 0;
  subjects_.forget_in_flight();
  connect_later();
  return_all(queue_, error);
}

/* When connect() or check_time() has something to do. */
Publisher::Time Publisher::look_at() const {
  Time at = connect_at();
  if (connection_) {
    at = std::min(subjects_.look_at(), alive_at_ + config_->options.ping_interval * (pinged_ ? 2 : 1));
    if (connection_->unsent() < most_unsent)
      for (const auto &[subject, waiting] : waiting_)
        at = std::min(at, subjects_.ready_at(subject));
    if (!in_flight_.empty())
      at = std::min({at, stall_detector_.stalled_at(), ask_at(),
                     std::max(in_flight_.begin()->second.sent_at + StallDetector::stall_after,
                              Clock::now() + milliseconds(500))}); /* give_up_unanswered() may have to wait */
  }
  return at;
}

void Publisher::check_time() {
  Time now = Clock::now();
  const auto interval = config_->options.ping_interval;
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

void Publisher::pump() {
  uint64_t serial = 0;
  while (connection_->unsent() < most_unsent) {
    std::optional<Message> message = queue_.start(false, serial);
    if (!message)
      return;
    start(serial, std::move(*message));
  }
}

void Publisher::start(uint64_t serial, Message message) {
  if (!subjects_.any()) {
    publish(serial, message, false);
    return;
  }
  switch (subjects_.look_up(message.subject, Clock::now())) {
  case RefusedTargets::Answer::Send:
    publish(serial, message, false);
    break;
  case RefusedTargets::Answer::Try:
  case RefusedTargets::Answer::Few:
    publish(serial, message, true);
    break;
  case RefusedTargets::Answer::Wait:
    if (2 * n_waiting_ < config_->options.max_in_flight) { /* the rest is for other subjects */
      waiting_[message.subject].push_back({serial, std::move(message)});
      n_waiting_++;
      break;
    }
    [[fallthrough]];
  case RefusedTargets::Answer::Defer:
    defer(serial, message.subject);
    break;
  }
}

void Publisher::publish(uint64_t serial, Message &message, bool counted) {
  if (message.data.size() > connection_->max_payload()) {
    subjects_.ended(message.subject, counted);
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

void Publisher::defer(uint64_t serial, const std::string &subject) {
  const auto delay = subjects_.wait(subject, Clock::now());
  queue_.fail(serial, Outcome::Deferred, subjects_.why(subject), subjects_.reason(subject), delay.count());
}

/* Those whose subject may be tried, or is not tried soon enough. */
void Publisher::send_waiting() {
  const Time now = Clock::now();
  for (auto at = waiting_.begin(); at != waiting_.end();) {
    auto &[subject, messages] = *at;
    while (!messages.empty() && connection_->unsent() < most_unsent) {
      const RefusedTargets::Answer answer = subjects_.look_up(subject, now);
      if (answer == RefusedTargets::Answer::Wait)
        break;
      Waiting first = std::move(messages.front());
      messages.pop_front();
      n_waiting_--;
      if (answer == RefusedTargets::Answer::Defer)
        defer(first.serial, subject);
      else
        publish(first.serial, first.message, answer != RefusedTargets::Answer::Send);
    }
    at = messages.empty() ? waiting_.erase(at) : std::next(at);
  }
}

/* Called after send_waiting(): a subject with no message in flight has none here. */
void Publisher::look_at_subjects() {
  if (report_targets(
          subjects_.look(Clock::now()), [this](const std::string &subject) { return about_subject(subject); },
          any_subject, "is stored again"))
    warn_degraded(subjects_.summary());
}

}  // namespace outbox::nats
