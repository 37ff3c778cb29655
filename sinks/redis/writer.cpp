/*
 * writer.cpp: connecting, and an entry's way to the server. replies.cpp has the way back.
 *
 * Many commands are appended to one buffer and sent together, so the socket is used a few times per thousand entries.
 * No more than `most_unsent` bytes are appended ahead of a server that does not read.
 */
#include "writer.h"

#include <algorithm>

namespace outbox::redis {

using std::chrono::milliseconds;

static constexpr size_t most_unsent = 262'144;

Writer::Writer(std::shared_ptr<const RedisConfig> config, std::shared_ptr<Reporter> reporter)
    : PeerThread(config->options, std::move(reporter)), config_(std::move(config)),
      queue_(reporter_, config_->options.max_in_flight) {
  launch();
}

Writer::~Writer() {
  shut_down(queue_.event());
}

void Writer::run_once() {
  if (!connection_) {
    if (Clock::now() >= connect_at() || queue_.has_work())
      connect();
    else
      wait_until(look_at(), queue_.event(), nullptr);
    return;
  }
  pump();
  look_at_streams();
  try {
    const bool any_taken = connection_->flush();
    stall_detector_.on_flush(any_taken, connection_->unsent() > 0 ? connection_->queued() : 0, Clock::now());
  } catch (const PeerError &) {
    read(); /* why the server hangs up comes before the end of the connection */
    throw;
  }
  wait_until(look_at(), queue_.event(), connection_.get());
  read();
  check_time();
}

// ---- the connection ----

void Writer::connect() {
  connection_ = open<Connection>(config_->options);
  if (!was_idle_)
    reporter_->log(OB_LOG_INFO, "connected to " + connection_->peer() + ", " + connection_->product());
  report_up();
}

void Writer::lose(const PeerError &error) {
  succeed(queue_, acknowledged_);
  /* A server may close connections that are idle (`timeout`): that is no outage unless connecting fails. */
  was_idle_ = connection_ && queue_.running() == 0 && error.reason == OB_REASON_CONNECTION;
  if (connection_)
    next_host(); /* another one may be the master now */
  connection_.reset();
  in_flight_.clear();
  last_entry_ = {};
  waits_in_flight_ = 0;
  stored_.clear();
  blocked_.clear();
  streams_.forget_in_flight();
  connect_later();
  if (was_idle_)
    return;
  return_all(queue_, error);
}

/* When connect() or check_time() has something to do. */
Writer::Time Writer::look_at() const {
  Time at = connect_at();
  if (connection_) {
    at = streams_.look_at();
    if (!in_flight_.empty())
      at = std::min(at, stall_detector_.stalled_at());
  }
  return at;
}

void Writer::check_time() {
  Time now = Clock::now();
  if (stall_detector_.is_stalled(in_flight_.size(), now) && !stall_detector_.drains(connection_->queued(), now))
    throw PeerError("connect", OB_REASON_TIMEOUT,
                    "the server " + connection_->peer() + " has replied nothing for " +
                        std::to_string(StallDetector::stall_after.count()) + " s, and " +
                        std::to_string(in_flight_.size()) +
                        (in_flight_.size() == 1 ? " command waits for it" : " commands wait for it"));
}

// ---- commands out ----

void Writer::pump() {
  if (!blocked_.empty()) {
    if (queue_.has_work()) { /* a probe of the circuit */
      report_down(blocked_, OB_REASON_BROKER);
      queue_.halt(blocked_);
    }
    return;
  }
  uint64_t serial = 0;
  bool any = false;
  while (connection_->unsent() < most_unsent) {
    std::optional<Message> message = queue_.start(false, serial);
    if (!message)
      break;
    any |= send(serial, *message);
  }
  if (any && config_->options.wait_replicas > 0)
    ask_replicas(Why::Entries);
}

/* Returns false if the event must wait for its stream. */
bool Writer::send(uint64_t serial, Message &message) {
  using Answer = RefusedTargets::Answer;
  const Time now = Clock::now();
  const Answer answer = streams_.any() ? streams_.look_up(message.stream, now) : Answer::Send;
  if (answer == Answer::Wait || answer == Answer::Defer) {
    const auto delay = streams_.wait(message.stream, now);
    queue_.fail(serial, Outcome::Deferred, streams_.why(message.stream), streams_.reason(message.stream),
                delay.count());
    return false;
  }
  const bool counted = answer != Answer::Send;
  send_command({serial, std::move(message.stream), counted}, message.command.bytes(), Why::Entries);
  queue_.forget_bytes(serial);
  return true;
}

/* Called after pump(): a stream with no entry in flight has none to be sent. */
void Writer::look_at_streams() {
  if (report_targets(streams_.look(Clock::now()), about_stream, any_stream, "can be written"))
    warn_degraded(streams_.summary());
}

/* Replicas have what was sent before. */
void Writer::ask_replicas(Why why) {
  send_command({},
               Command({"WAIT", std::to_string(config_->options.wait_replicas),
                        std::to_string(config_->options.wait_timeout.count())})
                   .bytes(),
               why);
  waits_in_flight_++;
}

void Writer::send_command(Sent sent, std::string_view command, Why why) {
  stall_detector_.on_submit(in_flight_.size(), Clock::now());
  in_flight_.push_back(std::move(sent));
  if (why == Why::Reply)
    connection_->answer(command);
  else
    connection_->out() += command;
}

}  // namespace outbox::redis
