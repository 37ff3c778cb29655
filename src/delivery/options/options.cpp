/*
 * options.cpp: parses numbers, durations, sizes and enumerations. Each error names the option, the value and what
 * is allowed.
 */
#include "delivery/options/options.h"

#include <algorithm>
#include <cctype>
#include <charconv>

#include "delivery/base/text.h"

namespace outbox {

using std::chrono::milliseconds;

const std::string *find_option(const Options &options, OptionName name) {
  auto at = options.find(name.text);
  return at == options.end() ? nullptr : &at->second;
}

const char *form_text(OptionForm form) {
  switch (form) {
  case OptionForm::Word:
    return "word";
  case OptionForm::Number:
    return "number";
  case OptionForm::Duration:
    return "duration";
  case OptionForm::List:
    return "list";
  case OptionForm::Template:
    return "template";
  case OptionForm::Object:
    return "JSON object";
  case OptionForm::Rate:
    return "rate";
  case OptionForm::Text:
    break;
  }
  return "text";
}

void throw_bad_value(const std::string &name, const std::string &value, std::string detail, std::string hint) {
  throw BadInput(OB_BAD_VALUE, name, "invalid value for option \"" + name + "\": \"" + value + "\"",
                 std::move(detail), std::move(hint));
}

void refuse_without_meaning(const Options &options, OptionName name, const std::string &reason) {
  if (find_option(options, name))
    throw BadInput(OB_BAD_VALUE, name, "option \"" + std::string(name) + "\" has no meaning here", reason);
}

void refuse_value(const std::string &name, std::string detail, std::string hint) {
  throw BadInput(OB_BAD_VALUE, name, "invalid value for option \"" + name + "\"", std::move(detail), std::move(hint));
}

/* ---- values ---- */

bool parse_bool(const std::string &name, const std::string &value) {
  std::string word;
  for (unsigned char c : trim(value))
    word += static_cast<char>(std::tolower(c));
  if (word == "true" || word == "on" || word == "yes" || word == "1")
    return true;
  if (word == "false" || word == "off" || word == "no" || word == "0")
    return false;
  throw_bad_value(name, value, "Expected \"true\" or \"false\".");
}

int64_t parse_int(const std::string &name, const std::string &value, int64_t min, int64_t max) {
  std::string_view text = trim(value);
  int64_t number = 0;
  auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size() || text.empty() || number < min || number > max)
    throw_bad_value(name, value,
                    "Expected a whole number from " + std::to_string(min) + " to " + std::to_string(max) + ".");
  return number;
}

struct Unit {
  std::string_view name;
  int64_t ms;
};
static constexpr Unit units[] = {{"ms", 1},     {"s", 1000},      {"min", 60'000},
                                 {"m", 60'000}, {"h", 3'600'000}, {"d", 86'400'000}};

std::string duration_text(milliseconds duration) {
  if (duration.count() == 0)
    return "0";
  for (Unit unit : {units[5], units[4], units[2], units[1]})
    if (duration.count() % unit.ms == 0)
      return std::to_string(duration.count() / unit.ms) + std::string(unit.name);
  return std::to_string(duration.count()) + "ms";
}

milliseconds parse_duration(const std::string &name, const std::string &value, milliseconds min, milliseconds max) {
  std::string_view text = trim(value);
  int64_t number = 0;
  auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  std::string_view unit_name = trim(text.substr(static_cast<size_t>(end - text.data())));
  int64_t factor = number == 0 && unit_name.empty() && !text.empty() ? 1 : 0;
  for (Unit unit : units)
    if (unit.name == unit_name)
      factor = unit.ms;
  if (error != std::errc() || factor == 0 || text.starts_with('-') || number > INT64_MAX / factor ||
      number * factor < min.count() || number * factor > max.count())
    throw_bad_value(name, value,
                    "Expected a duration from " + duration_text(min) + " to " + duration_text(max) +
                        " with a unit: ms, s, min (or m), h, d.");
  return milliseconds(number * factor);
}

static constexpr std::pair<std::string_view, size_t> sizes[] = {{"MB", 1024 * 1024}, {"kB", 1024}, {"B", 1}, {"", 1}};

std::string size_text(size_t size) {
  for (const auto &[unit, bytes] : sizes)
    if (size % bytes == 0)
      return std::to_string(size / bytes) + std::string(unit);
  return {};
}

size_t parse_size(const std::string &name, const std::string &value, size_t min, size_t max) {
  std::string_view text = trim(value);
  size_t number = 0;
  auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  std::string_view unit_name = trim(text.substr(static_cast<size_t>(end - text.data())));
  const auto *unit =
      std::find_if(std::begin(sizes), std::end(sizes), [&](auto &each) { return each.first == unit_name; });
  if (error != std::errc() || unit == std::end(sizes) || number > max / unit->second || number * unit->second < min)
    throw_bad_value(name, value,
                    "Expected a size from " + size_text(min) + " to " + size_text(max) +
                        ": a whole number of bytes, or one with a unit: kB, MB.");
  return number * unit->second;
}

}  // namespace outbox
