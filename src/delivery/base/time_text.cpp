/*
 * time_text.cpp: std::chrono computes the calendar; years outside 0 to 9999 have no RFC 3339 text and are refused
 * when the event is enqueued.
 */
#include "delivery/base/time_text.h"

#include <chrono>
#include <cstdio>

namespace outbox {

using namespace std::chrono;

void append_time(int64_t unix_us, std::string &out) {
  sys_time<microseconds> time{microseconds(unix_us)};
  auto day = floor<days>(time);
  year_month_day date(day);
  hh_mm_ss clock(time - day);
  char text[80];
  int length = snprintf(text, sizeof text, "%04d-%02u-%02uT%02d:%02d:%02d.%06dZ", int(date.year()),
                        unsigned(date.month()), unsigned(date.day()), int(clock.hours().count()),
                        int(clock.minutes().count()), int(clock.seconds().count()), int(clock.subseconds().count()));
  out.append(text, static_cast<size_t>(length));
}

bool is_writable_time(int64_t unix_us) {
  constexpr sys_days first = year(0) / January / 1, end = year(10'000) / January / 1;
  sys_time<microseconds> time{microseconds(unix_us)};
  return time >= first && time < end;
}

}  // namespace outbox
