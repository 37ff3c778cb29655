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
constexpr int64_t absurd_s = 366 * 86'400;  // a moment in place of a duration, most likely

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

/* Unix time. Whatever the process's locale is. */
std::optional<int64_t> http_date(const std::string &text) {
  for (const char *format : {"%a, %d %b %Y %H:%M:%S GMT", "%A, %d-%b-%y %H:%M:%S GMT", "%a %b %e %H:%M:%S %Y"}) {
    bool has_zone = std::string_view(format).ends_with("GMT");  // get_time forgives where the text ends before it
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

/* Reads a list of structured fields (RFC 9651), as far as RateLimit needs it. */
class FieldList {
public:
  explicit FieldList(std::string_view text) : rest_(trim(text)) {}

  /* The next member's parameters r and t; nothing when the list is malformed. */
  struct Quota {
    std::optional<int64_t> remaining, seconds;
  };
  std::optional<Quota> next() {
    Quota quota;
    if (!value())
      return {};
    while (take(';')) {
      spaces();
      std::string_view key = word("abcdefghijklmnopqrstuvwxyz0123456789_-.*");
      if (key.empty())
        return {};
      std::string_view before = rest_;
      if (take('=') && !value())
        return {};
      if (key == "r" || key == "t")
        (key == "r" ? quota.remaining : quota.seconds) =
            before == rest_ ? std::nullopt : whole_number(before.substr(1, before.size() - rest_.size() - 1));
    }
    spaces();
    if (rest_.empty())
      return quota;
    if (!take(','))
      return {};
    spaces();
    return rest_.empty() ? std::nullopt : std::optional(quota);
  }
  bool at_end() const { return rest_.empty(); }

private:
  bool take(char c) {
    bool there = !rest_.empty() && rest_.front() == c;
    rest_.remove_prefix(there ? 1 : 0);
    return there;
  }
  void spaces() { word(" \t"); }
  std::string_view word(std::string_view of) {
    std::string_view found = rest_.substr(0, std::min(rest_.find_first_not_of(of), rest_.size()));
    rest_.remove_prefix(found.size());
    return found;
  }
  /* A string, or anything that is written without quotes: a number, a token, bytes. */
  bool value() {
    if (!take('"'))
      return !word("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789!#$%&'*+-.^_`|~:/?@=").empty();
    for (;;) {
      size_t stop = rest_.find_first_of("\"\\");
      if (stop == rest_.npos)
        return false;
      bool escape = rest_[stop] == '\\';
      rest_.remove_prefix(std::min(stop + (escape ? 2 : 1), rest_.size()));
      if (!escape)
        return true;
    }
  }

  std::string_view rest_;
};

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

int64_t rate_limit_ms(std::string_view value) {
  int64_t longest = -1;
  FieldList list(value);
  while (!list.at_end()) {
    auto quota = list.next();
    if (!quota)
      return -1;
    if (quota->remaining == 0 && quota->seconds)
      longest = std::max(longest, wait_ms(*quota->seconds));
  }
  return longest;
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
