/* What holds after every history of a limiter and a circuit, and for every retry policy: rapidcheck makes them up,
 * and shrinks one for which it does not hold. */
#include <algorithm>
#include <deque>

#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include "delivery/engine/circuit_breaker.h"
#include "delivery/options/retry.h"
#include "delivery/http/concurrency_limiter.h"

using namespace outbox;
using namespace std::chrono_literals;
using std::chrono::milliseconds;

namespace {

/* Up to `most`, small ones more often. */
milliseconds some_time(milliseconds most) {
  int64_t scale = *rc::gen::element<int64_t>(1, 10, 100, 1000, 10'000, 100'000'000);
  return milliseconds(*rc::gen::inRange<int64_t>(0, std::min(most.count(), scale) + 1));
}

/* An endpoint under random answers. Requests are known by when they were started. */
struct LimitedEndpoint {
  using Time = ConcurrencyLimiter::Time;

  LimitedEndpoint(size_t concurrency_, std::optional<RateLimit> rate_)
      : concurrency(concurrency_), rate(rate_), limiter(concurrency_, rate_) {}

  void start() {
    size_t window = limiter.window();
    Time next = limiter.next(running.size(), now);
    RC_ASSERT(next >= now);
    if (!limiter.start(running.size(), now)) {
      RC_ASSERT(next > now || running.size() >= window);
      return;
    }
    RC_ASSERT(now >= paused);
    running.push_back(now);
    started.push_back(now);
    RC_ASSERT(running.size() <= concurrency);
    if (rate) {
      while (started.front() <= now - rate->per)
        started.pop_front();
      RC_ASSERT(started.size() <= static_cast<size_t>(rate->requests));
    }
  }

  void answer(int kind) {
    Time began = running.front();
    running.pop_front();
    if (kind == 0)
      limiter.succeeded(running.size(), now);
    else
      limiter.slow_down(began, now, kind == 1);
  }

  void step() {
    int what = *rc::gen::weightedElement<int>({{8, 0}, {8, 1}, {6, 2}, {2, 3}, {2, 4}, {1, 5}, {1, 6}});
    if (what == 0)
      start();
    else if (what >= 2 && what <= 4 && !running.empty())
      answer(what - 2);
    else if (what == 5)
      limiter.pause_until(paused = std::max(paused, now + some_time(10s)));
    else if (what == 6)
      limiter.begin_slowly(now);
    else
      now += some_time(10s);
    RC_ASSERT(limiter.window() >= 1 && limiter.window() <= concurrency);
    RC_ASSERT((limiter.max_held(now) > 0) == (now >= limiter.open_at(now)));
  }

  size_t concurrency;
  std::optional<RateLimit> rate;
  ConcurrencyLimiter limiter;
  Time now = Time() + 1h, paused{};
  std::deque<Time> running, started;
};

LimitedEndpoint some_endpoint(bool may_have_rate) {
  std::optional<RateLimit> rate;
  if (may_have_rate && *rc::gen::arbitrary<bool>())
    rate = RateLimit{*rc::gen::inRange<int64_t>(1, 200),
                     *rc::gen::element(milliseconds(100), milliseconds(1000), milliseconds(10'000))};
  LimitedEndpoint endpoint(*rc::gen::inRange<size_t>(1, 65), rate);
  for (int steps = *rc::gen::inRange(0, 200); steps > 0; steps--)
    endpoint.step();
  return endpoint;
}

RC_GTEST_PROP(Properties, TheLimiterKeepsItsBoundsAndNeverStops, ()) {
  LimitedEndpoint endpoint = some_endpoint(true);
  /* All is answered: the next request starts when next() says, after the pause, within the five seconds of the
   * slowest rate and the turn of the rate limit. */
  while (!endpoint.running.empty())
    endpoint.answer(0);
  auto latest = std::max(endpoint.paused, endpoint.now) + 5001ms + (endpoint.rate ? endpoint.rate->per : 0ns);
  for (int tries = 0; !endpoint.limiter.start(0, endpoint.now); tries++) {
    auto next = endpoint.limiter.next(0, endpoint.now);
    RC_ASSERT(tries < 5 && next > endpoint.now && next <= latest);
    endpoint.now = next;
  }
}

RC_GTEST_PROP(Properties, TheLimiterComesBackToItsWidth, ()) {
  LimitedEndpoint endpoint = some_endpoint(false);
  while (!endpoint.running.empty())
    endpoint.answer(0);
  for (int tries = 0; endpoint.limiter.window() < endpoint.concurrency; tries++) {
    RC_ASSERT(tries < 20'000);
    for (size_t one = 0; one < endpoint.concurrency && endpoint.limiter.start(endpoint.running.size(), endpoint.now);
         one++)
      endpoint.running.push_back(endpoint.now);
    endpoint.now += 100ms;
    while (!endpoint.running.empty())
      endpoint.answer(0);
  }
}

struct ProbedSink {
  using Time = CircuitBreaker::Time;

  void submit() {
    if (circuit.credit(now) == 0)
      return;
    under_way.push_back({{Outcome::Sent}, ++tickets, *rc::gen::inRange<uint64_t>(0, 15)});
    circuit.on_submit(tickets, *rc::gen::weightedElement<bool>({{3, false}, {1, true}}));
  }

  void end() {
    Completion completion = under_way[*rc::gen::inRange<size_t>(0, under_way.size())];
    std::erase_if(under_way, [&](const Completion &other) { return other.ticket == completion.ticket; });
    completion.outcome = *rc::gen::weightedElement<Outcome>({{2, Outcome::Sent},
                                                             {1, Outcome::Retry},
                                                             {8, Outcome::RetryBlameSink},
                                                             {4, Outcome::Refused},
                                                             {2, Outcome::SinkDown},
                                                             {1, Outcome::Deferred},
                                                             {1, Outcome::Rejected},
                                                             {1, Outcome::Returned}});
    if (*rc::gen::weightedElement<bool>({{5, false}, {1, true}}))
      completion.retry_after_ms = *rc::gen::inRange<int64_t>(0, 86'400'001);
    bool was_open = circuit.is_open();
    ob_outcome outcome = circuit.on_result(completion, now);
    switch (completion.outcome) {
    case Outcome::Sent:
      RC_ASSERT(outcome == OB_SENT && !circuit.is_open());
      break;
    case Outcome::RetryOwnPeer:
      RC_ASSERT(outcome == OB_RETRY && was_open == circuit.is_open());
      break;
    case Outcome::Retry:
    case Outcome::RetryBlameSink:
    case Outcome::Refused:
      RC_ASSERT(outcome == OB_RETRY || outcome == OB_RETURNED || outcome == OB_DEFERRED);
      RC_ASSERT(outcome == OB_RETRY || circuit.is_open()); /* no attempt is spared while it is up */
      RC_ASSERT(!was_open || circuit.is_open());
      break;
    case Outcome::SinkDown:
      RC_ASSERT(outcome == OB_RETURNED && circuit.is_open());
      break;
    default:
      RC_ASSERT(was_open == circuit.is_open());
    }
  }

  void step() {
    int what = *rc::gen::inRange(0, 5);
    if (what <= 1)
      submit();
    else if (what <= 3 && !under_way.empty())
      end();
    else
      now += some_time(100s);
    uint32_t credit = circuit.credit(now);
    RC_ASSERT(circuit.is_open() == (credit != UINT32_MAX));
    RC_ASSERT(!circuit.is_open() || credit <= 100);
    RC_ASSERT(!circuit.is_open() || circuit.outage_began() <= now);
    RC_ASSERT(circuit.defer_ms() >= 5000 && circuit.defer_ms() <= 3'600'000);
  }

  CircuitBreaker circuit{CircuitBreaker::Settings{}, 1};
  Time now = Time() + 1h;
  uint64_t tickets = 0;
  std::vector<Completion> under_way;
};

RC_GTEST_PROP(Properties, TheCircuitCanAlwaysCloseAgain, ()) {
  ProbedSink sink;
  for (int steps = *rc::gen::inRange(0, 300); steps > 0; steps--)
    sink.step();
  /* Without a word from anybody: a probe may go within five minutes, or as soon as those under way have ended. */
  for (const Completion &left : std::exchange(sink.under_way, {}))
    (void)sink.circuit.on_result({{Outcome::Returned}, left.ticket, left.key_hash}, sink.now);
  if (sink.circuit.credit(sink.now) == 0) {
    int64_t wait = sink.circuit.retry_in_ms(sink.now);
    RC_ASSERT(wait > 0 && wait <= 300'000);
    RC_ASSERT(sink.circuit.credit(sink.now + milliseconds(wait)) > 0);
  }
  (void)sink.circuit.on_result({{Outcome::Sent}, 1, 1}, sink.now);
  RC_ASSERT(sink.circuit.credit(sink.now) == UINT32_MAX);
}

RC_GTEST_PROP(Properties, AnExponentialPolicyDoublesUpToItsLast, (uint64_t random)) {
  int64_t week = 7 * 86'400'000;
  int64_t first = std::max<int64_t>(1, some_time(milliseconds(week)).count());
  int64_t last = first + some_time(milliseconds(week - first)).count();
  auto policy = RetryPolicy::parse("retry", std::to_string(first) + "ms.." + std::to_string(last) + "ms");
  int64_t whole = first;
  for (int attempts = 1; attempts < 60; attempts++, whole = std::min(2 * whole, last)) {
    int64_t delay = policy.delay(attempts, false, random).count();
    RC_ASSERT(delay >= whole - whole / 2 && delay <= whole);
    int64_t slow = policy.delay(attempts, true, random).count(),
            least = std::max(whole, std::min<int64_t>(60'000, last));
    RC_ASSERT(slow >= least && slow <= least + least / 10);
  }
}

RC_GTEST_PROP(Properties, StepsAreTakenAsOftenAsTheySay, (uint64_t random)) {
  auto n = *rc::gen::inRange<size_t>(1, 6);
  std::vector<int64_t> schedule;
  std::string text;
  for (size_t i = 0; i < n; i++) {
    int64_t delay = some_time(std::chrono::hours(24 * 7)).count();
    auto times = *rc::gen::inRange<size_t>(1, 20);
    schedule.insert(schedule.end(), times, delay);
    text +=
        (text.empty() ? "" : ", ") + std::to_string(delay) + "ms" + (times > 1 ? "*" + std::to_string(times) : "");
  }
  auto policy = RetryPolicy::parse("retry", text);
  for (size_t attempts = 1; attempts < schedule.size() + 5; attempts++) {
    int64_t expected = schedule[std::min(attempts, schedule.size()) - 1];
    int64_t delay = policy.delay(static_cast<int>(attempts), false, random).count();
    RC_ASSERT(delay >= expected && delay <= expected + expected / 10);
  }
}

}  // namespace
