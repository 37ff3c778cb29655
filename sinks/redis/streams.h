/*
 * streams.h: the streams of a Redis sink to which no entry can be added: another type has their key, or the user may
 * not write to it. Their events wait, those of other streams continue. Redis has no question that answers this for a
 * later XADD, so one event tries after each pause:
 *
 *   good -> refused (0.5 s, 1 s, ... 30 s) -> tried -> refused
 *                                                   -> good
 *
 * Only refused streams are remembered. Time is a parameter. Used by one thread.
 */
#pragma once

#include <chrono>
#include <cstddef>
#include <map>
#include <string>
#include <string_view>

namespace outbox::redis {

class Streams {
public:
  using Time = std::chrono::steady_clock::time_point;
  using Duration = std::chrono::milliseconds;

  static constexpr Duration first_pause{500};
  static constexpr Duration longest_pause{30'000};
  /* The distance between the due times of two deferred events, so that a long backlog is not rewritten again and
   * again. */
  static constexpr Duration wait_spacing{1};
  /* A refused stream without events for this long is forgotten. */
  static constexpr Duration forget_after{2 * longest_pause};

  /* The problem of a stream whose event must wait; null: send it, and call accepted() or refused(). */
  const std::string *problem(std::string_view name, Time now);
  /* Both return true if that is news. */
  bool accepted(std::string_view name);
  bool refused(const std::string &name, std::string problem, Time now);
  /* After which time an event of a refused stream may be sent. */
  Duration wait(std::string_view name, Time now);

  /* Returns true if a refused stream was forgotten. */
  bool forget_unused(Time now);
  /* When to call forget_unused(); Time::max() = never. */
  Time look_at() const { return refused_.empty() ? Time::max() : look_at_; }
  /* The problem of the refused streams in one text; empty if there is none. */
  std::string summary() const;

private:
  struct Refused {
    std::string problem;
    Duration pause{0};
    Time until{}; /* no event tries before */
    Time used{};
    bool tried = false; /* since the last refusal */
  };
  std::map<std::string, Refused, std::less<>> refused_;
  Time last_wait_{}, look_at_{};
};

}  // namespace outbox::redis
