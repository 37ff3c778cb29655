/*
 * exchanges.h: which exchanges of a RabbitMQ sink exist. A broker closes the channel, with all messages in flight on
 * it, when a message names an exchange that does not exist. So each exchange is asked for before it is used first, on
 * a channel of its own.
 *
 *   unknown -> asked -> there
 *              asked -> missing (0.5 s, 1 s, ... 30 s) -> asked
 *
 * Time is a parameter. Used by one thread.
 */
#pragma once

#include <chrono>
#include <cstddef>
#include <map>
#include <string>

namespace outbox::rabbitmq {

class Exchanges {
public:
  using Time = std::chrono::steady_clock::time_point;
  using Duration = std::chrono::milliseconds;

  static constexpr Duration first_pause{500};
  static constexpr Duration longest_pause{30'000};
  /* The distance between the due times of two deferred events, so that a long backlog is not rewritten again and
   * again. */
  static constexpr Duration wait_spacing{1};
  /* A missing exchange without events for this long is forgotten. */
  static constexpr Duration forget_after{2 * longest_pause};
  static constexpr size_t most_remembered = 10'000;

  /* Ask: ask the broker, then call found() or missing(). Wait: it has been asked. */
  enum class Answer { There, Ask, Wait, Missing };
  Answer look_up(const std::string &name, Time now);
  /* Returns true if it was missing before. */
  bool found(const std::string &name);
  /* Returns true if it was not missing before. */
  bool missing(const std::string &name, Time now);
  /* After which time an event of a missing exchange may be sent again. */
  Duration wait(const std::string &name, Time now);
  /* Nothing is known any more about exchanges that were there, or were asked for. */
  void forget_answers();

  /* Returns true if a missing exchange was forgotten. */
  bool forget_unused(Time now);
  /* When to call forget_unused(); Time::max() = never. */
  Time look_at() const { return n_missing_ > 0 ? look_at_ : Time::max(); }
  /* The problem of the missing exchanges in one text; empty if none is missing. `problem(name)` is that of one. */
  template <class Problem> std::string summary(Problem problem) const {
    for (const auto &[name, exchange] : exchanges_)
      if (exchange.missing)
        return problem(name) + (n_missing_ == 1 ? "" : "; " + std::to_string(n_missing_ - 1) + " more are missing");
    return {};
  }

private:
  struct Exchange {
    bool there = false, asked = false, missing = false;
    Duration pause{0};
    Time until{}; /* a missing exchange is not asked for before */
    Time used{};
  };
  std::map<std::string, Exchange, std::less<>> exchanges_;
  size_t n_missing_ = 0;
  Time last_wait_{}, look_at_{};
};

}  // namespace outbox::rabbitmq
