/* passed_time.cpp: takes the place of the clocks of the standard library and of the C library, in this program. */
#include "passed_time.h"

#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <ctime>
#include <thread>

static thread_local std::chrono::seconds passed{0};

PassedTime::~PassedTime() {
  passed = {};
}

void PassedTime::pass(std::chrono::seconds time) {
  passed += time;
}

template <class Clock> static typename Clock::time_point read_clock(clockid_t clock) {
  timespec now{};
  clock_gettime(clock, &now);
  return
      typename Clock::time_point(std::chrono::seconds(now.tv_sec) + std::chrono::nanoseconds(now.tv_nsec) + passed);
}

std::chrono::steady_clock::time_point std::chrono::steady_clock::now() noexcept {
  return read_clock<steady_clock>(CLOCK_MONOTONIC);
}

std::chrono::system_clock::time_point std::chrono::system_clock::now() noexcept {
  return read_clock<system_clock>(CLOCK_REALTIME);
}

static std::atomic<time_t> ahead_s;

extern "C" int clock_gettime(clockid_t clock, timespec *time) noexcept {
  long result = syscall(SYS_clock_gettime, clock, time);
  if (result == 0 && clock == CLOCK_REALTIME)
    time->tv_sec += ahead_s;
  return static_cast<int>(result);
}

extern "C" int timespec_get(timespec *time, int base) noexcept { /* librdkafka's waits use this one */
  return clock_gettime(CLOCK_REALTIME, time) == 0 ? base : 0;
}

ClockAhead::ClockAhead() {
  ahead_s = 3600;
}

ClockAhead::~ClockAhead() {
  std::this_thread::sleep_for(std::chrono::seconds(1));
  ahead_s = 0;
}
