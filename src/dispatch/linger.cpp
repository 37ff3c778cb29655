/*
 * linger.cpp: a claim, and a request to each partition of the broker, cost about as much for one event as for
 * twenty. So the wait after a claim grows with the rate of events; at a low rate, where it would save little, there
 * is none. Measured with eight clients, one event per transaction and 12 partitions: without lingering 0.56 of a
 * plain INSERT's TPS, and 0.66 of a core for the broker at 9,900 events/s; with it 0.93, and 0.11 of a core at
 * 16,700 events/s.
 *
 * A round asks each sink how much it takes. With 1,000 sinks that all have a backlog, that costs milliseconds, and
 * some event has always ended meanwhile: without a rest the worker went round for a few events each time.
 */
#include "dispatch/linger.h"

#include <algorithm>

namespace dispatch {

/* The rate is measured over at least this time, so that one transaction with many events does not count as load. */
static constexpr int64_t WINDOW_US = 20 * 1000;
static constexpr int64_t BUSY_RATE = 2000;
static constexpr int64_t MS_PER_THOUSAND = 2, LONGEST_MS = 20;

/* A shorter round costs less than a rest would. */
static constexpr int64_t LONG_ROUND_US = 2 * 1000;

void Linger::claimed(Moment began, Moment ended, int events, int running, bool more) noexcept {
  const int64_t took_us = ended.us - began.us;

  rest_until_ = took_us < LONG_ROUND_US ? MOMENT_NONE : moment_after(ended, std::min(took_us / 1000, LONGEST_MS));
  running_enough_ = running - running / 4;
  const int64_t elapsed_us = began.us - window_began_.us;

  in_window_ += events;
  if (elapsed_us >= WINDOW_US) {
    rate_ = in_window_ * 1000000 / elapsed_us;
    window_began_ = began;
    in_window_ = 0;
  }
  until_ = more || rate_ < BUSY_RATE ? MOMENT_NONE
                                     : moment_after(began, std::min(rate_ * MS_PER_THOUSAND / 1000, LONGEST_MS));
}

}  // namespace dispatch
