/*
 * throttle.h: slows down who guesses passwords. After a few failures each further one doubles the wait: for an
 * address up to a minute, and for a role up to a few seconds, because others must not be able to keep its owner out.
 * Time is a parameter; the caller holds a lock.
 */
#pragma once

#include <algorithm>
#include <chrono>
#include <string>
#include <unordered_map>

namespace console {

class Throttle {
public:
  using Time = std::chrono::steady_clock::time_point;
  using Duration = std::chrono::seconds;

  static constexpr int free_failures = 4;
  static constexpr size_t most_remembered = 10000;
  static constexpr Duration forget_after{15 * 60};

  explicit Throttle(Duration longest) : longest_(longest) {}

  /* 0: it may try now. */
  Duration wait(const std::string &who, Time now) const {
    const auto found = failures_.find(who);
    if (found == failures_.end() || found->second.until <= now)
      return Duration{0};
    return std::chrono::ceil<Duration>(found->second.until - now);
  }
  void failed(const std::string &who, Time now) {
    if (failures_.size() >= most_remembered)
      forget(now);
    Failures &of = failures_[who];
    of.n++;
    of.last = now;
    if (of.n > free_failures)
      of.until = now + std::min<Duration>(longest_, Duration{1 << std::min(of.n - free_failures - 1, 10)});
  }
  void succeeded(const std::string &who) { failures_.erase(who); }
  /* What is old; and if that is not enough, everybody who need not wait any more. */
  void forget(Time now) {
    std::erase_if(failures_, [&](const auto &each) { return each.second.last + forget_after < now; });
    if (failures_.size() >= most_remembered)
      std::erase_if(failures_, [&](const auto &each) { return each.second.until <= now; });
    if (failures_.size() >= most_remembered)
      failures_.clear();
  }

private:
  struct Failures {
    int n = 0;
    Time last{}, until{};
  };
  Duration longest_;
  std::unordered_map<std::string, Failures> failures_;
};

}  // namespace console
