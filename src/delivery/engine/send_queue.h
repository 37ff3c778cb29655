/*
 * send_queue.h: what the two threads of a sink share that keeps one event of a key in flight, or a run of them in one
 * request, and many keys side by side: the main thread queues messages, the sink's thread sends them and reports how
 * they ended.
 *
 * A success is reported at once. A failure keeps its key occupied until the main thread has fetched it together with
 * the later events of its key, so that none of them, submitted in between, overtakes it. `halted` says that no
 * message gets through: nothing is started until the main thread has fetched the failures and returned what is
 * queued.
 *
 * A Message has the members of QueuedEvent, and size(): the bytes that it occupies.
 */
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "delivery/base/event_fd.h"
#include "delivery/engine/keyed_queue.h"
#include "delivery/engine/sink.h"

namespace outbox {

/* The facts about a message's event that the queue needs. */
struct QueuedEvent {
  uint64_t ticket, key_hash;
  int64_t position;
  explicit QueuedEvent(const ob_event &event)
      : ticket(event.ticket), key_hash(event.key_hash), position(event.position) {}
};

template <class Message> class SendQueue {
public:
  /* `wake` takes the place of event() for a sink's thread that does not wait for descriptors: any thread calls it. */
  SendQueue(std::shared_ptr<Reporter> reporter, uint32_t max_in_flight, std::function<void()> wake = {});
  SendQueue(const SendQueue &) = delete;

  // ---- the main thread ----

  /* As Sink::keep_acknowledgements(). */
  void keep_acknowledgements(bool keep) { keeps_acknowledgements_ = keep; }
  uint32_t credit() const { return credit(most_held_); }
  /* `most`: the messages that the sink may hold. */
  uint32_t credit(size_t most) const;
  void push(Message message);
  /* Wakes the sink's thread if it may start a message. */
  void wake_if_needed();
  /* Reports the failures since the last call, and returns the events that must not overtake them. */
  void report_failures();
  /* The circuit has opened: failures of messages that were started before are returned without an attempt. */
  void begin_outage();
  void release_queued(const char *why);
  /* All that has not ended is returned; what the sink's thread says later about it is ignored. */
  void abandon();

  // ---- the sink's thread ----

  /* The next message, and the serial number by which it ends. At most one may be in flight if `alone`, or after
   * losses that an event may have caused (lost()). */
  std::optional<Message> start(bool alone, uint64_t &serial);
  /* The next message of a key of which one has been started, if `takes` it: they are sent together, and none ends
   * before the former one. */
  template <class Takes> std::optional<Message> start_behind(uint64_t key, Takes takes, uint64_t &serial);
  /* The started message needs no memory any more but for its end. */
  void forget_bytes(uint64_t serial);
  /* Whether acknowledged() is of use: the texts are kept. */
  bool keeps_acknowledgements() const { return keeps_acknowledgements_; }
  /* Call it before succeed(): a text for people, the peer's answer for this message. */
  void acknowledged(uint64_t serial, std::string text);
  void succeed(const std::vector<uint64_t> &serials);
  /* With Retry the peer refuses it, perhaps for now; with Rejected it is found that it can never be sent. `halts`: as
   * halt(), unless it was started before an outage. */
  void fail(uint64_t serial, Verdict verdict, bool halts = false) { fail({{serial, std::move(verdict)}}, halts); }
  /* Several at once, so that of a run of a key no event comes again before the last has ended. */
  using Failures = std::vector<std::pair<uint64_t, Verdict>>; /* by serial */
  void fail(Failures failures, bool halts);
  void fail(uint64_t serial, Outcome outcome, std::string error, ob_reason reason = OB_REASON_NONE,
            int64_t retry_after_ms = -1) {
    fail(serial, {outcome, std::move(error), reason, retry_after_ms});
  }
  /* The peer refuses this message for good: a dead letter, unless it refuses every message. */
  void refuse(uint64_t serial, std::string error, ob_reason reason) {
    fail(serial, refusal(std::move(error), reason));
  }
  static Verdict refusal(std::string error, ob_reason reason) {
    return {.outcome = Outcome::Retry, .error = std::move(error), .reason = reason, .max_refusals = 1};
  }
  /* The connection is lost: returns all that is queued or has been started. After repeated losses with the same
   * oldest message in flight, messages are sent one at a time, as many as were in flight. If the connection is lost
   * with one that was alone, that one fails and true is returned: it may be to blame, and not the peer. The circuit
   * decides that by what becomes of the others, so one of them is sent before it next time. */
  bool lost(const std::string &why, ob_reason reason);
  /* No message gets through: returns all that is queued. Messages in flight may still end. */
  void halt(const std::string &why);
  bool has_work() const;
  /* Whether start_behind() may find a message. */
  bool has_followers() const {
    Locked lock(mutex_);
    return queue_.has_followers();
  }
  size_t running() const;

  // ---- both ----

  /* Readable when the sink's thread is to look. */
  const EventFd &event() const { return *event_; }
  void wake() const { event_ ? event_->wake() : wake_(); }

private:
  /* Messages that the sink holds, whatever their number. */
  static constexpr size_t most_bytes = 64UL << 20;
  /* Later events of a key wait in the queue: with room for only as many as may be in flight, a few busy keys would
   * keep the other keys out. */
  static constexpr size_t held_per_in_flight = 4;

  struct Running {
    uint64_t ticket, key, outage;
    int64_t position;
    size_t bytes;                /* of its message, while that is in memory */
    std::string acknowledgement; /* empty: none is kept */
  };
  using Locked = std::lock_guard<std::mutex>;
  size_t held() const { return queue_.queued() + queue_.running(); }
  uint64_t begin(const Locked &locked, const Message &message);
  bool is_culprit(const Locked &locked, int64_t position) const;
  bool fail(const Locked &locked, uint64_t serial, Verdict verdict);
  Running take(const Locked &locked, typename std::map<uint64_t, Running>::iterator at);
  void halt(const Locked &locked, const std::string &why);
  void wake_main(const Locked &locked);
  void release(const typename KeyedQueue<Message>::Items &items, const char *why,
               std::vector<Completion> &completions);

  const std::shared_ptr<Reporter> reporter_;
  const size_t most_held_;
  const std::function<void()> wake_;
  const std::unique_ptr<const EventFd> event_; /* null with wake_ */

  mutable std::mutex mutex_; /* guards the members down to outage_ */
  KeyedQueue<Message> queue_;
  std::map<uint64_t, Running> running_; /* by serial */
  std::vector<Completion> failures_;
  bool halted_ = false;
  std::string halted_why_;
  size_t bytes_ = 0; /* of the messages of queue_ and running_ */
  uint64_t last_serial_ = 0;
  uint64_t outage_ = 0; /* number of outages so far */
  struct {
    int64_t oldest = 0;                /* position of the oldest message in flight when the connection was lost */
    int in_a_row = 0;                  /* losses with that one */
    size_t alone_left = 0;             /* messages that are to be sent one at a time */
    std::array<int64_t, 8> culprits{}; /* positions of the last messages that have failed so */
    size_t n_culprits = 0;
    bool any_answer = false; /* a message has ended since the last loss */
  } losses_;

  std::atomic<bool> keeps_acknowledgements_{false};
  /* failures_ or halted_ changed; atomic, so that the common "nothing" needs no lock. */
  std::atomic<bool> has_news_{false};
};

template <class Message>
SendQueue<Message>::SendQueue(std::shared_ptr<Reporter> reporter, uint32_t max_in_flight, std::function<void()> wake)
    : reporter_(std::move(reporter)), most_held_(held_per_in_flight * max_in_flight), wake_(std::move(wake)),
      event_(wake_ ? nullptr : std::make_unique<EventFd>()), queue_(max_in_flight) {}

// ---- the main thread ----

template <class Message> uint32_t SendQueue<Message>::credit(size_t most) const {
  Locked lock(mutex_);
  if (halted_ || held() >= most || bytes_ >= most_bytes)
    return 0;
  return static_cast<uint32_t>(most - held());
}

template <class Message> bool SendQueue<Message>::is_culprit(const Locked & /*locked*/, int64_t position) const {
  const auto &culprits = losses_.culprits;
  return std::find(culprits.begin(), culprits.end(), position) != culprits.end();
}

template <class Message> void SendQueue<Message>::push(Message message) {
  Locked lock(mutex_);
  uint64_t key = message.key_hash;
  size_t bytes = message.size();
  const bool again = is_culprit(lock, message.position);
  queue_.push(key, std::move(message));
  bytes_ += bytes;
  if (again) /* it takes no other with it this time */
    losses_.alone_left = held();
}

template <class Message> void SendQueue<Message>::wake_if_needed() {
  {
    Locked lock(mutex_);
    if (halted_ || !queue_.can_start())
      return;
  }
  wake();
}

template <class Message>
void SendQueue<Message>::release(const typename KeyedQueue<Message>::Items &items, const char *why,
                                 std::vector<Completion> &completions) {
  for (const auto &[key, message] : items) {
    bytes_ -= message.size();
    completions.push_back({{Outcome::Returned, why}, message.ticket, message.key_hash});
  }
}

template <class Message> void SendQueue<Message>::report_failures() {
  if (!has_news_.exchange(false))
    return;
  std::vector<Completion> completions;
  {
    Locked lock(mutex_);
    for (Completion &failure : failures_) {
      uint64_t key = failure.key_hash;
      completions.push_back(std::move(failure));
      release(queue_.fail(key), "waits behind a failed event of the same key", completions);
    }
    failures_.clear();
    if (halted_)
      release(queue_.drain(), halted_why_.c_str(), completions);
    halted_ = false;
  }
  if (!completions.empty())
    reporter_->complete(std::move(completions));
  wake(); /* it may go on */
}

template <class Message> void SendQueue<Message>::begin_outage() {
  {
    Locked lock(mutex_);
    outage_++;
  }
  release_queued("not sent: the sink is down");
}

template <class Message> void SendQueue<Message>::release_queued(const char *why) {
  std::vector<Completion> completions;
  {
    Locked lock(mutex_);
    release(queue_.drain(), why, completions);
  }
  if (!completions.empty())
    reporter_->complete(std::move(completions));
}

template <class Message> void SendQueue<Message>::abandon() {
  report_failures();
  std::vector<Completion> completions;
  {
    Locked lock(mutex_);
    for (const auto &[serial, running] : running_) {
      completions.push_back({{.outcome = Outcome::Returned,
                              .error = "given up while it was in flight: it may have arrived",
                              .unanswered = true},
                             running.ticket,
                             running.key});
      release(queue_.fail(running.key), "not sent yet", completions);
      bytes_ -= running.bytes;
    }
    running_.clear();
    release(queue_.drain(), "not sent yet", completions);
  }
  if (!completions.empty())
    reporter_->complete(std::move(completions));
}

// ---- the sink's thread ----

template <class Message> std::optional<Message> SendQueue<Message>::start(bool alone, uint64_t &serial) {
  Locked lock(mutex_);
  if (halted_ || !queue_.can_start() || ((alone || losses_.alone_left > 0) && queue_.running() > 0))
    return std::nullopt;
  if (!losses_.any_answer && losses_.n_culprits > 0)
    if (const size_t passed = queue_.prefer([&](const Message &each) { return !is_culprit(lock, each.position); }))
      losses_.alone_left = std::max(losses_.alone_left, passed + 1);
  std::optional<Message> message = queue_.start();
  serial = begin(lock, *message);
  return message;
}

template <class Message>
template <class Takes>
std::optional<Message> SendQueue<Message>::start_behind(uint64_t key, Takes takes, uint64_t &serial) {
  Locked lock(mutex_);
  if (halted_ || losses_.alone_left > 0)
    return std::nullopt;
  std::optional<Message> message = queue_.start_behind(key, takes);
  if (message)
    serial = begin(lock, *message);
  return message;
}

template <class Message> uint64_t SendQueue<Message>::begin(const Locked & /*locked*/, const Message &message) {
  running_[++last_serial_] = {message.ticket, message.key_hash, outage_, message.position, message.size(), {}};
  return last_serial_;
}

template <class Message> void SendQueue<Message>::forget_bytes(uint64_t serial) {
  Locked lock(mutex_);
  if (auto at = running_.find(serial); at != running_.end())
    bytes_ -= std::exchange(at->second.bytes, 0);
}

template <class Message>
typename SendQueue<Message>::Running SendQueue<Message>::take(const Locked & /*locked*/,
                                                              typename std::map<uint64_t, Running>::iterator at) {
  Running taken = std::move(at->second);
  bytes_ -= taken.bytes;
  running_.erase(at);
  losses_.alone_left -= losses_.alone_left > 0;
  return taken;
}

template <class Message> void SendQueue<Message>::acknowledged(uint64_t serial, std::string text) {
  Locked lock(mutex_);
  if (auto at = running_.find(serial); at != running_.end())
    at->second.acknowledgement = std::move(text);
}

template <class Message> void SendQueue<Message>::succeed(const std::vector<uint64_t> &serials) {
  const bool keeps = keeps_acknowledgements_;
  std::vector<uint64_t> tickets;
  std::vector<Completion> completions; /* those with a text */
  tickets.reserve(serials.size());
  {
    Locked lock(mutex_);
    for (uint64_t serial : serials) {
      auto at = running_.find(serial);
      if (at == running_.end())
        continue; /* abandoned: the ticket has its completion */
      Running running = take(lock, at);
      losses_.any_answer = true;
      queue_.finish(running.key);
      if (!keeps || running.acknowledgement.empty()) {
        tickets.push_back(running.ticket);
        continue;
      }
      Completion &completion = completions.emplace_back();
      completion.ticket = running.ticket;
      completion.key_hash = running.key;
      completion.outcome = Outcome::Sent;
      completion.acknowledgement = std::move(running.acknowledgement);
    }
  }
  if (!tickets.empty())
    reporter_->sent(std::move(tickets));
  if (!completions.empty())
    reporter_->complete(std::move(completions));
}

/* Called with the lock held, so that the main thread sees failures together with their announcement. */
template <class Message> void SendQueue<Message>::wake_main(const Locked & /*locked*/) {
  has_news_ = true;
  reporter_->wake();
}

/* Returns whether the failure says something new about the peer. */
template <class Message> bool SendQueue<Message>::fail(const Locked &locked, uint64_t serial, Verdict verdict) {
  auto at = running_.find(serial);
  if (at == running_.end())
    return false;
  const Running running = take(locked, at);
  const bool blames_event = verdict.outcome == Outcome::Retry || verdict.outcome == Outcome::RetryOwnPeer ||
                            verdict.outcome == Outcome::Rejected;
  if (!blames_event && running.outage != outage_)
    verdict.outcome = Outcome::Returned;
  verdict.slow_retry |= verdict.outcome == Outcome::Refused;
  failures_.push_back({std::move(verdict), running.ticket, running.key});
  return running.outage == outage_;
}

template <class Message> void SendQueue<Message>::fail(Failures failures, bool halts) {
  Locked lock(mutex_);
  losses_.any_answer = true;
  bool is_news = false;
  for (auto &[serial, verdict] : failures)
    is_news |= fail(lock, serial, std::move(verdict));
  if (halts && is_news)
    halt(lock, "not sent: the sink is down");
  else
    wake_main(lock);
}

template <class Message> bool SendQueue<Message>::lost(const std::string &why, ob_reason reason) {
  constexpr int suspicious = 3; /* losses in a row with the same oldest message */
  Locked lock(mutex_);
  const size_t in_flight = running_.size();
  bool blames_one = false;
  losses_.any_answer = false;
  if (in_flight > 0) {
    const int64_t oldest = running_.begin()->second.position;
    losses_.in_a_row = oldest == losses_.oldest ? losses_.in_a_row + 1 : 1;
    losses_.oldest = oldest;
    blames_one = in_flight == 1 && (losses_.alone_left > 0 || losses_.in_a_row > 1);
    if (blames_one) {
      losses_.culprits[losses_.n_culprits++ % losses_.culprits.size()] = oldest;
      fail(lock, running_.begin()->first,
           {.outcome = Outcome::RetryBlameSink, /* a peer may break at every message */
            .error = "the connection breaks at this event, which was sent alone: " + why,
            .reason = reason,
            .unanswered = true});
    }
  }
  while (!running_.empty())
    fail(lock, running_.begin()->first, {.outcome = Outcome::Returned, .error = why, .unanswered = true});
  if (!blames_one && losses_.in_a_row >= suspicious)
    losses_.alone_left = std::max(losses_.alone_left, in_flight);
  halt(lock, why);
  return blames_one;
}

template <class Message> void SendQueue<Message>::halt(const std::string &why) {
  Locked lock(mutex_);
  halt(lock, why);
}

template <class Message> void SendQueue<Message>::halt(const Locked &locked, const std::string &why) {
  halted_ = true;
  halted_why_ = why;
  wake_main(locked);
}

template <class Message> bool SendQueue<Message>::has_work() const {
  Locked lock(mutex_);
  return !halted_ && queue_.can_start();
}

template <class Message> size_t SendQueue<Message>::running() const {
  Locked lock(mutex_);
  return running_.size();
}

}  // namespace outbox
