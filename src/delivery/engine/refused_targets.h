/*
 * refused_targets.h: the targets of a sink (topics, subjects, routing keys) that the peer refuses at present: full,
 * missing, or forbidden. A refused target delays its own messages only, and one message at a time finds out whether
 * the target takes messages again.
 *
 *   (no entry) --refused--> paused --(pause over)--> tried --refused--> paused, twice as long
 *                              ^                       | passed
 *                              '-----refused------- passing --(1 s without a refusal)--> (no entry)
 *
 * The first pause is `first`. After something has passed the next one is `shortest`: a stream that a consumer empties
 * ten times a second takes messages ten times a second. While a target is passing, as many messages may be in flight
 * as have passed so far, and one more, so that few are sent to a target that is full again.
 *
 * Messages of a pause shorter than `first` wait in the sink (Wait), others in the table (Defer). `why` begins with
 * the name of the target, so that the events deferred for it are found by it.
 *
 * Time is a parameter. Used by one thread.
 */
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <map>
#include <string>
#include <vector>

#include "delivery/kind.h"

namespace outbox {

class RefusedTargets {
public:
  using Time = std::chrono::steady_clock::time_point;
  using Duration = std::chrono::milliseconds;

  struct Limits {
    Duration shortest{10}; /* the first pause after something has passed */
    Duration first{500};   /* the first pause of a target that took all so far */
    Duration longest{30'000};
    /* The distance between the due times of two deferred events, of all targets together, so that a long backlog is
     * not rewritten again and again. */
    Duration wait_spacing{1};
    /* A target that passes again is healthy after this time without a refusal. */
    Duration settled{1000};
    /* The distance between two calls for deferred events of a target that passes, and has none to send. */
    Duration call{500};
    /* Where each key has a target of its own, the rest waits for the longest pause. */
    size_t most_remembered = 1000;
    /* A paused target without events for this long is forgotten. */
    Duration forget_after() const { return 2 * longest; }
  };

  /* Send: nothing is known against the target. Try: send it, alone, and say with `counted` true how it has ended.
   * Few: the same, beside a few others. Wait: not now, but in less than half a second. Defer: later. */
  enum class Answer { Send, Try, Few, Wait, Defer };

  RefusedTargets() = default;
  explicit RefusedTargets(Limits limits) : limits_(limits) {}

  bool any() const { return !targets_.empty(); }
  Answer look_up(const std::string &target, Time now);

  // ---- how a message has ended; call the one that fits for each message if any() ----

  /* The target has taken it. Returns true if it took nothing for the longest pause: what was wrong is often over for
   * all targets. So each of them is tried now, and the events that are deferred for any of them may be sent. */
  bool passed(const std::string &target, bool counted, Time now);
  /* The target has refused it. Returns true if it was not refused before. */
  bool refused(const std::string &target, std::string why, ob_reason reason, bool counted, Time now);
  /* It has ended without an answer about the target. */
  void ended(const std::string &target, bool counted);
  /* The peer has said, without a message, that it is not refused any more. Returns true if it was. */
  bool accepted(const std::string &target) { return targets_.erase(target) > 0; }
  /* Nothing is in flight any more. */
  void forget_in_flight();

  // ---- deferred events ----

  /* After which time an event of the target may be sent again; one that was counted comes after the others, so that
   * they take turns. */
  Duration wait(const std::string &target, Time now, bool counted = false);
  /* Why the target was refused last; empty if that is not remembered. */
  std::string why(const std::string &target) const;
  ob_reason reason(const std::string &target) const;
  /* When a message that waits may be sent; Time::max(): when a message of the target ends. */
  Time ready_at(const std::string &target) const;

  /* Call it when all that may be sent was sent. */
  struct News {
    std::vector<std::string> wanted;  /* targets whose deferred events may be sent at once */
    bool all_wanted = false;          /* there are many such targets: those of all targets may be */
    std::vector<std::string> healthy; /* targets that are not refused any more */
    bool forgotten = false;           /* some have no events any more */
  };
  News look(Time now);
  /* When to call look(); Time::max() = never. */
  Time look_at() const { return any() ? look_at_ : Time::max(); }
  /* The problem of all in one text; empty if there is none. */
  std::string summary() const;

private:
  enum class State { Paused, Tried, Passing };
  struct Target {
    State state = State::Paused;
    std::string why;
    ob_reason reason = OB_REASON_NONE;
    Duration pause{0};
    Time until{};  /* Paused: it is not tried before */
    Time used{};   /* when it was last looked up */
    Time passed{}; /* when it last took something; Time(): never */
    Time passing_since{}, called{};
    size_t in_flight = 0, window = 0; /* messages that are counted, and how many may be */
    bool deferred = false;            /* events since the last call for them */
  };
  using Targets = std::map<std::string, Target, std::less<>>;

  void pause(Target &target, Duration pause, Time now);
  static void uncount(Target &target) { target.in_flight -= target.in_flight > 0; }
  Time next_look(const Target &target) const;
  void look_later(const Target &target) { look_at_ = std::min(look_at_, next_look(target)); }

  Limits limits_;
  Targets targets_;
  Time last_wait_{}, look_at_ = Time::max();
  Time all_wanted_at_{}; /* when passed() last returned true */
};

}  // namespace outbox
