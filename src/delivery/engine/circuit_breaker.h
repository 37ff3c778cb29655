/*
 * circuit_breaker.h: is a sink as a whole up? While it is open the sink takes nothing but probes, and no event's
 * attempts are spent on its outage.
 *
 *   closed --(sink down, many keys failing in a row, or two when nothing succeeds)--> open
 *   open --(backoff over)--> half-open: one probe
 *   half-open --(success)--> closed;  half-open --(failure)--> open, with a longer backoff
 *
 * A pure class: time comes in as a parameter. One thread.
 */
#pragma once

#include <chrono>
#include <cstdint>
#include <random>
#include <unordered_set>
#include <vector>

#include "delivery/engine/sink.h"

namespace outbox {

class CircuitBreaker {
public:
  using Time = std::chrono::steady_clock::time_point;
  using Duration = std::chrono::milliseconds;

  struct Settings {
    size_t failing_keys = 10; /* different keys that fail in a row before the sink is blamed */
    /* Fewer keys, but more than one, are blamed on the sink as well when nothing has succeeded for so long since the
     * first of their failures (less than a failure waits to be recorded), nor in the time before. Retries count, too,
     * but not those of keys that have failed while others succeeded: it is their own fault. */
    Duration alone{200};
    Duration without_success{1000};
    size_t keys_remembered = 10'000;
    size_t widest = 100; /* probes at once: there may be as many events that always fail before a good one */
    /* While it is open, an event that has failed before and fails again waits, or hundreds of such events would be
     * all that is ever probed: so long for each that was put off since the outage began, that all of them have had
     * their turn when the first one comes again. */
    Duration put_off_each{1000};
    Duration put_off_least{5000};
    Duration put_off_most{3'600'000};
    Duration first_backoff{200};
    Duration longest_backoff{5000};
    /* The same where the peer refuses by the way it or the sink is set up: that waits for a user. */
    Duration first_refused{5000};
    Duration longest_refused{300'000};
    Duration longest_wish{300'000}; /* a peer's Retry-After puts the next probe off for so long at most */
  };

  CircuitBreaker() : CircuitBreaker(Settings(), std::random_device{}()) {}
  CircuitBreaker(Settings settings, uint32_t seed) : settings_(settings), random_(seed) {}

  /* How one event ended: moves the circuit, and says what that means for the event. When that is OB_DEFERRED and the
   * peer has not said for how long: put_off_ms(). */
  ob_outcome on_result(const Completion &completion, Time now);
  void on_sent(uint64_t ticket, Time now);
  /* Seen apart from any event. */
  void down(Time now);
  void up();

  /* How many events may go now; UINT32_MAX when closed. Opens when what has failed is judged by now; starts probing
   * when the backoff is over. */
  uint32_t credit(Time now);
  /* With credit 0: how long until it may be more; -1 = when a probe ends. */
  int64_t retry_in_ms(Time now) const;
  void on_submit(uint64_t ticket, bool failed_before = false);

  int64_t put_off_ms() const;
  bool is_open() const { return state_ != State::Closed; }
  /* Since when nothing has succeeded, while it is open. */
  Time outage_began() const { return outage_began_; }

private:
  enum class State { Closed, Open, HalfOpen };

  void open(Time now, bool refused = false, int64_t wish_ms = 0);
  void close();
  void succeeded(Time now);
  bool note_failed_key(uint64_t key);
  void note_failure(const Completion &completion, bool failed_before, Time now);
  bool nothing_succeeds(Time now) const;
  void open_on_few(Time now);
  bool forget_probe(uint64_t ticket);
  ob_outcome blame(const Completion &completion, bool failed_before, Time now);

  Settings settings_;
  std::minstd_rand random_;
  State state_ = State::Closed;
  std::vector<uint64_t> failing_keys_; /* of the present row of failures, while closed */
  std::vector<uint64_t> probes_;       /* tickets under way in the half-open state */
  struct {
    bool any = false, many_keys = false;
    uint64_t first_key = 0;
    Time since{};
    int64_t wish_ms = 0;
  } failures_;                               /* of either kind in a row, while closed */
  std::unordered_set<uint64_t> failed_keys_; /* since the last success */
  std::unordered_set<uint64_t> own_fault_;   /* keys that have failed while others succeeded */
  std::unordered_set<uint64_t> may_spend_;   /* of them, those that have not failed since that success */
  Time success_{};
  bool any_success_ = false;
  /* Tickets under way whose event has failed before. That it fails again says nothing new: hundreds of such events,
   * due at the same time, must not stop a sink that takes all others. */
  std::unordered_set<uint64_t> failed_before_;
  /* Probes allowed at once. A probe that got an answer, if a bad one, may have been an event that always fails: the
   * next round tries more keys, so that one poisonous event cannot keep the circuit open. */
  size_t width_ = 1;
  int64_t put_off_ = 0; /* events, since the outage began */
  Time outage_began_{};
  Duration backoff_{0};
  Time retry_at_{};
};

}  // namespace outbox
