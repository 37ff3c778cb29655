/*
 * retry.h: the delay before a failed event is retried. '100ms..5min' doubles from the first delay to
 * the last; of steps ('15s*3, 5m*5') each is used in turn, and the last one repeats. Delays have a random part, so
 * that events that failed together are not retried together.
 */
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

namespace outbox {

class RetryPolicy {
public:
  /* Throws BadInput about option `name`. */
  static RetryPolicy parse(const std::string &name, const std::string &text);

  /* The delay after failed attempt number `attempts` (from 1). Delays that double are spread over their upper half;
   * steps last up to 10 % longer. `slow`: at least one minute, or the policy's longest delay if that is shorter, and
   * up to 10 % longer. */
  std::chrono::milliseconds delay(int attempts, bool slow, uint64_t random) const;

private:
  static RetryPolicy parse_text(const std::string &name, const std::string &text);
  int64_t doubled(int attempts) const;
  int64_t step(int attempts) const;
  int64_t longest_delay() const;

  struct Step {
    std::chrono::milliseconds delay;
    int times;
  };
  std::chrono::milliseconds first_{0}, last_{0};
  std::vector<Step> steps_; /* empty: the delay doubles */
};

}  // namespace outbox
