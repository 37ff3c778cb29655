/* passed_time.h: lets time pass without waiting for it. */
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
