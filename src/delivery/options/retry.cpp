/*
 * retry.cpp: parses retry policies and computes delays, with a random part, so that events that failed together are
 * not retried together.
 */
#include "delivery/options/retry.h"

#include <algorithm>
#include <string_view>

#include "delivery/base/text.h"
#include "delivery/options/options.h"

namespace outbox {

using std::chrono::milliseconds;

static constexpr milliseconds shortest{1};
static constexpr milliseconds longest = std::chrono::hours(24 * 7);
static constexpr milliseconds slow_delay = std::chrono::minutes(1);

[[noreturn]] static void bad_policy(const std::string &name, const std::string &text) {
  throw BadInput(OB_BAD_VALUE, name, "invalid value for option \"" + name + "\": \"" + text + "\"",
                 "A retry policy is a list of delays, or the first and the longest delay with \"..\" between.");
}

RetryPolicy RetryPolicy::parse(const std::string &name, const std::string &text) {
  try {
    return parse_text(name, text);
  } catch (BadInput &bad) { /* the error is about one duration or number: add the whole syntax */
    bad.hint =
        "Write '100ms..5min' (the delay doubles), or a list such as '15s*3, 5min*5, 1h': three times after 15 s, five "
        "times after 5 min, then every hour.";
    throw;
  }
}

RetryPolicy RetryPolicy::parse_text(const std::string &name, const std::string &text) {
  RetryPolicy policy;
  std::string_view rest = trim(text);

  if (size_t dots = rest.find(".."); dots != rest.npos) {
    policy.first_ = parse_duration(name, std::string(trim(rest.substr(0, dots))), shortest, longest);
    policy.last_ = parse_duration(name, std::string(trim(rest.substr(dots + 2))), shortest, longest);
    if (policy.last_ < policy.first_)
      throw BadInput(OB_BAD_VALUE, name, "invalid value for option \"" + name + "\": \"" + text + "\"",
                     "The longest delay is shorter than the first.");
    return policy;
  }

  for (std::string_view item : split(rest, ',')) {
    Step step{milliseconds(0), 1};
    size_t star = item.find('*');
    if (item.empty() || star == 0)
      bad_policy(name, text);
    if (star != item.npos)
      step.times = static_cast<int>(parse_int(name, std::string(trim(item.substr(star + 1))), 1, 1000));
    step.delay = parse_duration(name, std::string(trim(item.substr(0, star))), milliseconds(0), longest);
    policy.steps_.push_back(step);
  }
  if (policy.steps_.empty())
    bad_policy(name, text);
  return policy;
}

int64_t RetryPolicy::doubled(int attempts) const {
  int64_t delay = first_.count();
  for (int i = 1; i < attempts && delay < last_.count(); i++)
    delay *= 2;
  return std::min<int64_t>(delay, last_.count());
}

int64_t RetryPolicy::step(int attempts) const {
  for (const Step &step : steps_) {
    if (attempts <= step.times)
      return step.delay.count();
    attempts -= step.times;
  }
  return steps_.back().delay.count();
}

int64_t RetryPolicy::longest_delay() const {
  milliseconds longest = last_;
  for (const Step &step : steps_)
    longest = std::max(longest, step.delay);
  return longest.count();
}

milliseconds RetryPolicy::delay(int attempts, bool slow, uint64_t random) const {
  attempts = std::max(attempts, 1);
  int64_t delay = steps_.empty() ? doubled(attempts) : step(attempts);
  if (slow)
    delay = std::max(delay, std::min<int64_t>(slow_delay.count(), longest_delay()));
  if (slow || !steps_.empty())
    return milliseconds(delay + static_cast<int64_t>(random % static_cast<uint64_t>(delay / 10 + 1)));
  int64_t half = delay / 2;
  return milliseconds(delay - half + static_cast<int64_t>(random % static_cast<uint64_t>(half + 1)));
}

}  // namespace outbox
