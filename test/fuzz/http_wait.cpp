/* http_wait.cpp: Retry-After in seconds and in the three forms of a date that HTTP knows, and nothing else. */
#include "test/fuzz/fuzz.h"

#include <algorithm>
#include <ctime>

#include "delivery/base/text.h"
#include "delivery/http/http_wait.h"

using namespace outbox;

namespace {

constexpr int64_t day_ms = 86'400'000;

bool is_number(std::string_view text) {
  return !text.empty() && text.find_first_not_of("0123456789") == text.npos;
}

bool is_decimal(std::string_view text) {
  return !text.empty() && text.find_first_not_of("0123456789.") == text.npos;
}

std::string date(const char *format, time_t moment) {
  tm parts{};
  gmtime_r(&moment, &parts);
  char text[80];
  return std::string(text, strftime(text, sizeof text, format, &parts));
}

}  // namespace

void fuzz::one_input(std::string_view data) {
  Input input(data);
  std::string text = input.line(), other = input.line();
  int64_t number = input.number();
  auto now = static_cast<int64_t>(static_cast<uint64_t>(number) % 2'000'000'000);
  int64_t wait = retry_after_ms(text, "", now), limit = rate_limit_ms(text, other);
  for (int64_t ms : {wait, limit})
    HOLDS(ms == -1 || (ms > 0 && ms <= day_ms));
  if (limit != -1)
    HOLDS(is_number(trim(text)) && trim(text).find_first_not_of('0') == std::string_view::npos &&
          is_decimal(trim(other)) && limit == retry_after_ms(other, "", now));
  if (is_number(trim(text)) && trim(text).size() < 9) {
    int64_t seconds = std::stoll(std::string(trim(text)));
    HOLDS(wait == (seconds == 0 || seconds > 366 * 86'400 ? -1 : std::min(seconds * 1000, day_ms)));
  } else if (wait != -1) {
    HOLDS(is_decimal(trim(text)) || text.find_first_of("JFMASOND") != std::string::npos); /* it names a month */
    HOLDS(std::count(text.begin(), text.end(), ':') == 2 || is_decimal(trim(text)));
    HOLDS(text.find_first_not_of("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789 \t\v\f\r,:-+.") ==
          std::string::npos);
  }

  /* A date that is written is read, in each form; two digits of a year are of these years. */
  int64_t ahead = 1 + (number >> 32 & 0x1FFFFFF);
  for (const char *format : {"%a, %d %b %Y %H:%M:%S GMT", "%A, %d-%b-%y %H:%M:%S GMT", "%a %b %e %H:%M:%S %Y"}) {
    int64_t from = 1'000'000'000 + now / 2;
    const int64_t expected = ahead > 366 * 86'400 ? -1 : std::min(ahead * 1000, day_ms);
    HOLDS(retry_after_ms(date(format, from + ahead), "", from) == expected);
    HOLDS(retry_after_ms(date(format, from + ahead), date(format, from), now) == expected);
    HOLDS(retry_after_ms(date(format, from - ahead), "", from) == -1);
  }
}
