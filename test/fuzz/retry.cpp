/* retry.cpp: a policy that is accepted has the documented form, and its delays lie where it says. */
#include "test/fuzz/fuzz.h"

#include <regex>

#include "delivery/base/text.h"
#include "delivery/delivery.h"
#include "delivery/options/retry.h"

using namespace outbox;
using std::chrono::milliseconds;

void fuzz::one_input(std::string_view data) {
  Input input(data);
  std::string text = without_nul(input.line());
  auto random = static_cast<uint64_t>(input.number());
  RetryPolicy policy;
  bool good = accepted([&] { policy = RetryPolicy::parse("retry", text); });
  ob_error error{};
  HOLDS(ob_check_retry(text.c_str(), &error) == good);
  if (!good) {
    HOLDS(ob_retry_delay_ms(text.c_str(), 1, false, random) == 60'000);
    return;
  }
  constexpr milliseconds week = std::chrono::hours(24 * 7), minute = std::chrono::minutes(1);
  bool doubles = text.find("..") != std::string::npos;
  HOLDS(text.find_first_not_of("0123456789.msinhd*, \t\r\n") == std::string::npos);
  milliseconds longest{0}, before{0};
  for (int attempts : {INT32_MAX, 1001, 70, 5, 2, 1, 0, -1, INT32_MIN}) {
    milliseconds least = policy.delay(attempts, false, 0), delay = policy.delay(attempts, false, random);
    milliseconds slow = policy.delay(attempts, true, random);
    HOLDS(delay == milliseconds(ob_retry_delay_ms(text.c_str(), attempts, false, random)));
    HOLDS(least >= milliseconds(0) && delay >= least && delay <= week + week / 10);
    HOLDS(delay <= (doubles ? 2 * least : least + least / 10));
    HOLDS(slow >= std::min(minute, slow) && slow >= least);
    HOLDS(!doubles || attempts >= 1001 || least <= before); /* the attempts fall here */
    longest = std::max(longest, least);
    before = least;
  }
  HOLDS(policy.delay(1, true, 0) <= std::max(week, longest));
  HOLDS(policy.delay(0, false, random) == policy.delay(1, false, random));
}
