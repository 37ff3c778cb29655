/*
 * peer_sender.h: the thread of a sink that sends the messages of a SendQueue on one connection. It connects, sends,
 * reads, and says what becomes of messages whose connection is lost or whose target is refused. A kind of sink
 * derives from it, and says how a message is sent and what the peer's answers mean.
 *
 *   disconnected --(connected, logged in)--> sending <--(unblock / block)--> blocked
 *        ^------------(connection lost, nothing acknowledged for 30 s)--------'
 *
 * Many messages are written into one buffer and sent together, so the socket is used a few times per thousand
 * messages. No more than `most_unsent` bytes are written ahead of a peer that does not read.
 */
#pragma once

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "delivery/engine/refused_targets.h"
#include "delivery/engine/send_queue.h"
#include "delivery/engine/stall_detector.h"
#include "delivery/net/peer_thread.h"

namespace outbox {

template <class Config, class Connection, class Message> class PeerSender : public PeerThread {
public:
  using Queue = SendQueue<Message>;

  PeerSender(std::shared_ptr<const Config> config, std::shared_ptr<Reporter> reporter,
             RefusedTargets::Limits limits = {})
      : PeerThread(config->options, std::move(reporter)), config_(std::move(config)),
        queue_(reporter_, config_->options.max_in_flight), targets_(limits) {}

  Queue &queue() { return queue_; }
  const Queue &queue() const { return queue_; }

protected:
  static constexpr size_t most_unsent = 262'144;

  // ---- what a kind adds; all is called on the sink's thread ----

  virtual void on_connected() {}
  /* Writes messages to connection_->out(). */
  virtual void send() {
    pump();
    look_at_targets();
  }
  /* Sends the message, or ends it. */
  virtual void start(uint64_t serial, Message message) = 0;
  /* Messages are sent one at a time. */
  virtual bool is_careful() const { return false; }
  /* The messages for which an answer is to come now. */
  virtual size_t in_flight() const = 0;
  /* Takes what the connection has received. */
  virtual void on_received() = 0;
  /* Throws PeerError if the peer has been silent for too long. */
  virtual void check_time(Time now) { check_stalled(now); }
  /* When send() or check_time() has something to do. */
  virtual Time look_at() const {
    return in_flight() > 0 ? std::min(targets_.look_at(), stall_detector_.stalled_at()) : targets_.look_at();
  }
  /* The connection is lost. */
  virtual void forget_in_flight() = 0;
  /* The peer closes connections that are idle: that is no outage unless connecting fails. */
  virtual bool closes_idle_connections() const { return false; }
  /* The start of every text about a target: deferred events are found by it when the target is not refused any more.
   */
  virtual std::string about(const std::string &target) const = 0;
  /* Why a part of the sink is down; empty: all parts work. */
  virtual std::string problem() const { return targets_.summary(); }

  // ---- what a kind uses ----

  /* The peer takes no messages until unblock(). */
  void block(const std::string &why) {
    blocked_ = why;
    reporter_->down(blocked_, OB_REASON_BROKER);
    queue_.halt(blocked_);
  }
  void unblock() {
    if (blocked_.empty())
      return;
    blocked_.clear();
    stall_detector_.on_acknowledgement(received_at_);
    reporter_->up();
  }
  void check_stalled(Time now) {
    const size_t n = in_flight();
    if (!stall_detector_.is_stalled(n, now) || stall_detector_.drains(connection_->queued(), now))
      return;
    throw PeerError("connect", OB_REASON_TIMEOUT,
                    std::string("the ") + words().noun + " " + connection_->peer() + " has " + words().answered +
                        " nothing for " + std::to_string(StallDetector::stall_after.count()) + " s, and " +
                        std::to_string(n) + " " + words().message + (n == 1 ? " waits for it" : "s wait for it"));
  }
  /* The event waits until its target takes messages. */
  void defer(uint64_t serial, const std::string &target) {
    const auto delay = targets_.wait(target, Clock::now());
    queue_.fail(serial, Outcome::Deferred, targets_.why(target), targets_.reason(target), delay.count());
  }
  /* The peer refuses the target of this message; `why` goes on after about(). */
  void refuse(uint64_t serial, const std::string &target, const std::string &why, ob_reason reason, bool counted) {
    const std::string text = about(target) + why;
    const Time now = Clock::now();
    if (targets_.refused(target, text, reason, counted, now))
      report_problem(problem());
    queue_.fail(serial, Outcome::Deferred, text, reason, targets_.wait(target, now, counted).count());
  }
  /* The target has taken a message. */
  void passed(const std::string &target, bool counted) {
    if (targets_.passed(target, counted, received_at_))
      reporter_->resumed(words().any_target);
  }

  const std::shared_ptr<const Config> config_;
  Queue queue_;

  /* From here on: the sink's thread only. */
  std::unique_ptr<Connection> connection_; /* null while disconnected */
  Time sent_at_{}, received_at_{};
  Time alive_at_{};                    /* when something was received, or left a full socket */
  std::string blocked_;                /* why the peer takes nothing now; empty: it does */
  std::vector<uint64_t> acknowledged_; /* serials, reported together */
  RefusedTargets targets_;
  StallDetector stall_detector_;

private:
  const PeerTexts &words() const { return config_->options.words; }

  void run_once() override {
    if (!connection_) {
      if (Clock::now() >= connect_at() || queue_.has_work())
        connect();
      else
        wait_until(connect_at(), queue_.event(), nullptr);
      return;
    }
    send();
    flush();
    wait_until(look_at(), queue_.event(), connection_.get());
    read();
    check_time(Clock::now());
  }

  void connect() {
    connection_ = open<Connection>(config_->options);
    sent_at_ = received_at_ = alive_at_ = Clock::now();
    if (!was_idle_)
      reporter_->log(OB_LOG_INFO, "connected to " + connection_->peer() + ", " + connection_->product());
    on_connected();
    reporter_->up();
  }

  void lose(const PeerError &error) override {
    report_acknowledged();
    was_idle_ =
        closes_idle_connections() && connection_ && queue_.running() == 0 && error.reason == OB_REASON_CONNECTION;
    if (connection_)
      next_host(); /* another one may be the right one now */
    connection_.reset();
    blocked_.clear();
    forget_in_flight();
    targets_.forget_in_flight();
    connect_later();
    if (was_idle_)
      return;
    if (const std::string why = error.text(); !queue_.lost(why, error.reason))
      reporter_->down(why, error.reason); /* else one message is to blame */
  }

  void flush() {
    try {
      const bool any_taken = connection_->flush();
      const Time now = Clock::now();
      if (any_taken)
        sent_at_ = now;
      if (stall_detector_.on_flush(any_taken, connection_->unsent() > 0 ? connection_->queued() : 0, now))
        alive_at_ = now;
    } catch (const PeerError &) {
      read(); /* why the peer hangs up comes before the end of the connection */
      throw;
    }
  }

  void read() {
    for (int n = 0; n < PeerConnection::reads_in_turn && connection_->receive(); n++) {
      received_at_ = alive_at_ = Clock::now();
      on_received();
      report_acknowledged();
    }
  }

  void report_acknowledged() {
    if (acknowledged_.empty())
      return;
    queue_.succeed(acknowledged_);
    acknowledged_.clear();
  }

  void pump() {
    if (!blocked_.empty()) {
      if (queue_.has_work()) /* a probe of the circuit */
        block(blocked_);
      return;
    }
    uint64_t serial = 0;
    while (connection_->unsent() < most_unsent) {
      std::optional<Message> message = queue_.start(is_careful(), serial);
      if (!message)
        return;
      start(serial, std::move(*message));
    }
  }

  /* After pump(): a target without a message in flight has none to be sent. */
  void look_at_targets() {
    const RefusedTargets::News news = targets_.look(Clock::now());
    for (const std::string &target : news.healthy)
      reporter_->log(OB_LOG_INFO, about(target) + words().target_works);
    if (news.all_wanted)
      reporter_->resumed(words().any_target);
    else
      for (const std::string &target : news.wanted)
        reporter_->resumed(about(target));
    if (!news.healthy.empty() || news.forgotten)
      report_problem(problem());
  }

  bool was_idle_ = false; /* the last connection was lost while nothing was in flight */
};

}  // namespace outbox
