/*
 * http_wait.cpp: parses Retry-After (seconds or a date) and the rate-limit fields. Values that make no sense are
 * ignored: they must not stop a sink.
 */
#include "delivery/http/http_wait.h"

#include <algorithm>
#include <charconv>
#include <ctime>
#include <iomanip>
#include <locale>
#include <optional>
#include <sstream>
#include <string>

#include "delivery/base/text.h"

namespace outbox {
namespace {

constexpr int64_t longest_s = 86'400;
constexpr int64_t absurd_s = 366 * 86'400;  // probably a timestamp instead of a duration

int64_t wait_ms(int64_t seconds) {
  return seconds > 0 && seconds <= absurd_s ? std::min(seconds, longest_s) * 1000 : -1;
}

std::optional<int64_t> whole_number(std::string_view text) {
  int64_t number = 0;
  auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size() || text.front() == '-')
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

int64_t retry_after_ms(std::string_view value, int64_t now) {
  value = trim(value);
  if (value.empty())
    return -1;
  if (std::optional<int64_t> seconds = whole_number(value))
    return wait_ms(*seconds);
  std::optional<int64_t> moment = http_date(std::string(value));
  return moment && *moment > now ? wait_ms(*moment - now) : -1;
}

int64_t rate_limit_ms(std::string_view remaining, std::string_view reset) {
  remaining = trim(remaining);
  reset = trim(reset);
  if (remaining.empty() || reset.empty() || whole_number(remaining) != 0)
    return -1;
  std::optional<int64_t> seconds = whole_number(reset);
  return seconds ? wait_ms(*seconds) : -1;
}

}  // namespace outbox
