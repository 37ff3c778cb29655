/*
 * retry.h: when a failed event is tried again. 'exponential 100ms..5min' doubles from the first delay to the last;
 * steps ('15s*3, 5m*5') are taken one by one, and the last one repeats.
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

  /* The wait after the `attempts`th failure (from 1). Exponential delays are spread over their upper half, so that
   * what failed together does not come back together; steps are kept exactly. */
  std::chrono::milliseconds delay(int attempts, uint64_t random) const;

private:
  struct Step {
    std::chrono::milliseconds delay;
    int times;
  };
  std::chrono::milliseconds first_{0}, last_{0};
  std::vector<Step> steps_; /* empty: exponential */
};

}  // namespace outbox
