/*
 * http_wait.cpp: parses Retry-After (seconds or a date) and the rate-limit fields. Values that make no sense are
 * ignored: they must not stop a sink. HTTP knows no decimals, but Shopify and others send "2.0".
 */
#include "delivery/http/http_wait.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <ctime>
#include <iomanip>
#include <locale>
#include <optional>
#include <sstream>
#include <string>

#include "delivery/base/text.h"

namespace outbox {
namespace {

constexpr double longest_s = 86'400;
constexpr double absurd_s = 366 * 86'400;  // probably a timestamp instead of a duration

/* Whole milliseconds, rounded up: a pause is not shorter than what was asked for. */
int64_t wait_ms(double seconds) {
  return seconds > 0 && seconds <= absurd_s ? static_cast<int64_t>(std::ceil(std::min(seconds, longest_s) * 1000))
                                            : -1;
}

/* Digits, perhaps with a decimal point: no sign, no exponent. */
std::optional<double> decimal(std::string_view text) {
  double number = 0;
  if (text.find_first_not_of("0123456789.") != text.npos || text.starts_with('.') || text.ends_with('.'))
    return {};
  auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number, std::chars_format::fixed);
  if (error != std::errc() || end != text.data() + text.size())
    return {};
  return number;
}

/* Returns Unix time; independent of the process's locale. */
std::optional<int64_t> http_date(const std::string &text) {
  for (const char *format : {"%a, %d %b %Y %H:%M:%S GMT", "%A, %d-%b-%y %H:%M:%S GMT", "%a %b %e %H:%M:%S %Y"}) {
    bool has_zone = std::string_view(format).ends_with("GMT");  // get_time() accepts a text that ends before "GMT"
    if (has_zone != text.ends_with("GMT"))
      continue;
    std::istringstream in(text);
    in.imbue(std::locale::classic());
    std::tm parts{};
    in >> std::get_time(&parts, format);
    if (!in.fail() && in.peek() == std::istringstream::traits_type::eof())
      return timegm(&parts);
  }
  return {};
}

}  // namespace

int64_t retry_after_ms(std::string_view value, std::string_view date, int64_t now) {
  value = trim(value);
  if (value.empty())
    return -1;
  if (std::optional<double> seconds = decimal(value))
    return wait_ms(*seconds);
  std::optional<int64_t> moment = http_date(std::string(value));
  if (!moment)
    return -1;
  const int64_t from = http_date(std::string(trim(date))).value_or(now);
  return wait_ms(static_cast<double>(*moment) - static_cast<double>(from));
}

int64_t rate_limit_ms(std::string_view remaining, std::string_view reset) {
  remaining = trim(remaining);
  reset = trim(reset);
  if (remaining.empty() || reset.empty() || remaining.find_first_not_of('0') != remaining.npos)
    return -1;
  std::optional<double> seconds = decimal(reset);
  return seconds ? wait_ms(*seconds) : -1;
}

}  // namespace outbox
