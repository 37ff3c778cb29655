/*
 * circuit_breaker.h: decides whether a whole sink is down, or refuses every event. While the circuit is open, the
 * sink takes only probes, and the outage costs no event an attempt, unless probes can only be made with one key: it
 * may be that key's fault.
 *
 *   closed --(sink down, 10 keys failing in a row, or 2 when nothing succeeds)--> open
 *   open --(backoff over)--> half-open: probes
 *   half-open --(success)--> closed;  half-open --(failure)--> open, with a longer backoff
 *   open --(the peer can be reached again)--> half-open;  half-open --(then there is nothing to send)--> closed
 *
 * A peer that can be reached need not work: it may take every connection and answer no event. So only a success
 * closes the circuit while there are events, and the sink does not count as delivering before.
 *
 * Time is a parameter; the class has no clock and no lock. Used by one thread.
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
    size_t failing_keys = 10; /* this many different keys fail in a row: the sink is to blame */
    /* Two or more keys also open the circuit when nothing has succeeded for `alone` since their first failure
     * (shorter than the 250 ms for which a failure waits to be recorded), nor for `without_success` before now.
     * Retries count too, except those of keys that failed while others succeeded: such a key fails for its own
     * reasons. */
    Duration alone{200};
    Duration without_success{1000};
    /* While the circuit is open, from this probe on of one and the same key, attempts are spent: as while it is
     * closed, one key alone does not show that the sink is to blame. */
    size_t lone_probes = 3;
    size_t keys_remembered = 10'000;
    size_t most_probes = 100; /* probes at once: up to this many events that always fail may come before a good one */
    /* While the circuit is open, an event that fails again is deferred, otherwise hundreds of such events would use
     * up all probes. The delay is defer_each for every event deferred in this outage, so that each of them is tried
     * before the first is tried again. */
    Duration defer_each{1000};
    Duration defer_least{5000};
    Duration defer_most{3'600'000};
    Duration first_backoff{200};
    Duration longest_backoff{5000};
    /* The backoff when the peer refuses because of its or the sink's configuration, which a user must correct. */
    Duration first_refused{5000};
    Duration longest_refused{300'000};
    Duration longest_retry_after{300'000}; /* a peer's Retry-After delays the next probe by at most this */
    /* After the peer can be reached again: when no probe was made for so long, there is nothing to send; when none of
     * those in flight has ended for so long, more may be made, because others may be answered. */
    Duration quiet{1000};
  };

  CircuitBreaker() : CircuitBreaker(Settings(), std::random_device{}()) {}
  CircuitBreaker(Settings settings, uint32_t seed) : settings_(settings), random_(seed) {}

  /* Notes how an event ended, changes the state, and returns the event's outcome. If that is OB_DEFERRED and the peer
   * gave no delay, the delay is defer_ms(). */
  ob_outcome on_result(const Completion &completion, Time now);
  void on_sent(uint64_t ticket, Time now);
  /* The sink reported an outage, or that the peer can be reached again, independently of an event. */
  void down(Time now);
  void up(Time now);
  /* A user has ended the pause for which the peer asked: an open circuit probes at once. */
  void end_pause(Time now) { retry_at_ = std::min(retry_at_, now); }

  /* How many events may be submitted now; UINT32_MAX when closed. `idle`: the sink has no event and would take one.
   * Opens the circuit when nothing has succeeded for too long; becomes half-open when the backoff is over; closes it
   * when the peer can be reached again and there is nothing to send. */
  uint32_t credit(Time now, bool idle = true);
  /* When credit() has to be called although nothing else happens. */
  Time look_at() const {
    if (!is_reachable_ || state_ == State::Closed)
      return Time::max();
    return state_ == State::HalfOpen ? look_at_ : retry_at_;
  }
  /* With credit 0: the time until it may grow; -1 = it grows when a probe ends. */
  int64_t retry_in_ms(Time now) const;
  void on_submit(uint64_t ticket, bool failed_before = false);

  int64_t defer_ms() const;
  bool is_open() const { return state_ != State::Closed; }
  /* While open: the time of the first failure of the outage. */
  Time outage_began() const { return outage_began_; }

private:
  enum class State { Closed, Open, HalfOpen };

  void open(Time now, bool refused = false, int64_t retry_after_ms = 0);
  void close();
  void succeeded(Time now);
  bool note_failed_key(uint64_t key);
  void note_failure(const Completion &completion, bool failed_before, Time now);
  bool nothing_succeeds(Time now) const;
  void open_on_few(Time now);
  bool forget_probe(uint64_t ticket, Time now);
  void half_open(Time now);
  void look_at_quiet(Time now, bool idle);
  bool fails_alone(uint64_t key);
  ob_outcome blame(const Completion &completion, bool failed_before, Time now);
  ob_outcome note_result(const Completion &completion, bool failed_before, Time now);

  Settings settings_;
  std::minstd_rand random_;
  State state_ = State::Closed;
  std::vector<uint64_t> failing_keys_; /* the keys that have failed in a row, while closed */
  std::vector<uint64_t> probes_;       /* tickets of probes in flight, while half-open */
  struct {
    bool any = false, many_keys = false;
    uint64_t first_key = 0;
    Time since{};
    int64_t retry_after_ms = 0;
  } failures_;                               /* failures in a row, first attempts and retries, while closed */
  std::unordered_set<uint64_t> failed_keys_; /* keys that failed since the last success */
  std::unordered_set<uint64_t> own_fault_;   /* keys that failed while others succeeded */
  std::unordered_set<uint64_t> may_spend_;   /* keys of own_fault_ that have not failed since that success */
  Time success_{};
  bool any_success_ = false;
  /* Tickets in flight of events that failed before. Another failure of them does not count towards the ten keys:
   * hundreds of such events, due at the same time, must not stop a sink that accepts all others. */
  std::unordered_set<uint64_t> failed_before_;
  /* Probes allowed at once; doubles when a probe gets a bad response. The probed event may be one that always fails,
   * and it must not keep the circuit open. */
  size_t max_probes_ = 1;
  size_t lone_probes_ = 0; /* that failed in this outage while no other key did */
  int64_t n_deferred_ = 0; /* events deferred since the outage began */
  Time outage_began_{};
  Duration backoff_{0};
  Time retry_at_{};
  bool is_reachable_ = false;  /* while open: up() came after the last failure */
  bool was_reachable_ = false; /* in this outage: another up() does not shorten the backoff */
  Time look_at_ = Time::max(); /* while half-open and reachable: when to look whether it is quiet */
};

}  // namespace outbox
