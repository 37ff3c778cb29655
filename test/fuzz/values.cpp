/* values.cpp: numbers, durations and words of options: what is accepted lies within the bounds and has the form. */
#include "test/fuzz/fuzz.h"

#include <algorithm>
#include <optional>

#include "delivery/base/text.h"
#include "delivery/options/options.h"

using namespace outbox;
using std::chrono::milliseconds;

namespace {

/* DIGITS blank UNIT, by hand. Nothing for what is no duration. */
std::optional<__int128> duration(std::string_view text) {
  text = trim(text);
  size_t digits = std::min(text.find_first_not_of("0123456789"), text.size());
  if (digits == 0 || digits > 19)
    return {};
  __int128 number = 0;
  for (char c : text.substr(0, digits))
    number = number * 10 + (c - '0');
  std::string_view unit = trim(text.substr(digits));
  int64_t factor = unit == "ms"                   ? 1
                   : unit == "s"                  ? 1000
                   : unit == "min" || unit == "m" ? 60'000
                   : unit == "h"                  ? 3'600'000
                   : unit == "d"                  ? 86'400'000
                                                  : 0;
  if (unit.empty() && number == 0)
    factor = 1;
  return factor ? std::optional(number * factor) : std::nullopt;
}

}  // namespace

void fuzz::one_input(std::string_view data) {
  Input input(data);
  std::string text = without_nul(input.line());
  int64_t one = input.number(), two = input.number(), min = std::min(one, two), max = std::max(one, two), number = 0;
  if (accepted([&] { number = parse_int("n", text, min, max); })) {
    HOLDS(number >= min && number <= max);
    HOLDS(parse_int("n", std::to_string(number), min, max) == number);
    HOLDS(text.find_first_not_of("-0123456789 \t\r\n") == std::string::npos);
  }

  milliseconds least(0), most(INT64_MAX), found(0);
  auto expected = duration(text);
  bool leading_zeros = trim(text).size() > 18; /* from_chars takes any number of them */
  bool good = accepted([&] { found = parse_duration("d", text, least, most); });
  if (good && !leading_zeros)
    HOLDS(expected && *expected == found.count());
  if (!good && expected)
    HOLDS(*expected > INT64_MAX || *expected < 0 || (trim(text).size() >= 19));
  HOLDS(accepted([&] { parse_duration("d", text, milliseconds(min), milliseconds(max)); }) ==
        (good && found.count() >= min && found.count() <= max));

  bool yes = false;
  if (accepted([&] { yes = parse_bool("b", text); })) {
    std::string word(trim(text));
    std::transform(word.begin(), word.end(), word.begin(), [](unsigned char c) { return tolower(c); });
    for (const char *name : {"true", "on", "yes", "1"})
      HOLDS(word != name || yes);
    for (const char *name : {"false", "off", "no", "0"})
      HOLDS(word != name || !yes);
  }
}
