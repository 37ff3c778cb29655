/*
 * retry.h: when a failed event is tried again. 'exponential 100ms..5min' doubles from the first delay to the last;
 * steps ('15s*3, 5m*5') are taken one by one, and the last one repeats. Chance keeps what failed together from coming
 * back together.
 */
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

namespace outbox {

class RetryPolicy {
public:
  /* Throws BadInput, in the name of option `name`. */
  static RetryPolicy parse(const std::string &name, const std::string &text);

  /* The wait after the `attempts`th failure (from 1). Exponential delays are spread over their upper half, a step
   * lasts up to a tenth longer. `slow`: no sooner than after a minute, or after the policy's longest delay where that
   * is shorter, and up to a tenth later. */
  std::chrono::milliseconds delay(int attempts, bool slow, uint64_t random) const;

private:
  static RetryPolicy parse_text(const std::string &name, const std::string &text);
  int64_t exponential(int attempts) const;
  int64_t step(int attempts) const;
  int64_t longest_delay() const;

  struct Step {
    std::chrono::milliseconds delay;
    int times;
  };
  std::chrono::milliseconds first_{0}, last_{0};
  std::vector<Step> steps_; /* empty: exponential */
};

}  // namespace outbox
