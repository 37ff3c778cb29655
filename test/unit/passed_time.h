/* passed_time.h: lets time pass without waiting for it, and sets the wall clock back. */
#pragma once

#include <chrono>

/*
 * Time that passed for the thread that made this, by C++'s clocks: a sink, which runs on that thread, had nothing to
 * do for so long. Other threads, C libraries and waits keep the kernel's time.
 */
class PassedTime {
public:
  PassedTime() = default;
  ~PassedTime();
  PassedTime(const PassedTime &) = delete;
  PassedTime &operator=(const PassedTime &) = delete;
  void pass(std::chrono::seconds time);
};

/*
 * While one lives, this program's wall clock is an hour ahead of the kernel's, so waits for a time of it last an hour
 * longer: as if it were set back right after they began.
 */
struct ClockAhead {
  ClockAhead();
  ~ClockAhead(); /* a second later: librdkafka waits by then */
  ClockAhead(const ClockAhead &) = delete;
  ClockAhead &operator=(const ClockAhead &) = delete;
};
