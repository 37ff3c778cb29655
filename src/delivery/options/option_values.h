/*
 * option_values.h: the values that options take. An object of these is called with name and value of an option; it
 * returns what the value means, or throws BadInput. It also says for the documentation which values it takes, and
 * writes one as a user would.
 */
#pragma once

#include <chrono>
#include <string>
#include <utility>
#include <vector>

#include "delivery/options/options.h"

namespace outbox {

struct Boolean {
  static constexpr OptionForm form = OptionForm::Word;
  bool operator()(const std::string &name, const std::string &value) const { return parse_bool(name, value); }
  std::string takes() const { return "`true`, `false`"; }
  std::string text(bool value) const { return value ? "`true`" : "`false`"; }
};

struct Integer {
  static constexpr OptionForm form = OptionForm::Number;
  int64_t min, max;
  const char *unit = ""; /* what it counts: "requests at a time" */
  int64_t operator()(const std::string &name, const std::string &value) const {
    return parse_int(name, value, min, max);
  }
  std::string takes() const { return std::to_string(min) + " to " + std::to_string(max) + (*unit ? " " : "") + unit; }
  std::string text(int64_t value) const { return std::to_string(value); }
};

struct Duration {
  static constexpr OptionForm form = OptionForm::Duration;
  using Time = std::chrono::milliseconds;
  Time min, max;
  Time operator()(const std::string &name, const std::string &value) const {
    return parse_duration(name, value, min, max);
  }
  std::string takes() const { return duration_text(min) + " to " + duration_text(max); }
  std::string text(Time value) const { return "`" + duration_text(value) + "`"; }
};

/* A duration in whole seconds: what is less than one counts as one. */
struct WholeSeconds {
  static constexpr OptionForm form = OptionForm::Duration;
  Duration duration;
  std::chrono::seconds operator()(const std::string &name, const std::string &value) const {
    return std::chrono::ceil<std::chrono::seconds>(duration(name, value));
  }
  std::string takes() const { return duration.takes(); }
  std::string text(std::chrono::seconds value) const { return duration.text(value); }
};

/* Bytes, with or without a unit. */
struct Size {
  static constexpr OptionForm form = OptionForm::Number;
  static constexpr const char *unit = "bytes";
  size_t min, max;
  size_t operator()(const std::string &name, const std::string &value) const {
    return parse_size(name, value, min, max);
  }
  std::string takes() const { return size_text(min) + " to " + size_text(max); }
  std::string text(size_t value) const { return "`" + size_text(value) + "`"; }
};

/* One of some words. */
template <class Value> struct Choice {
  static constexpr OptionForm form = OptionForm::Word;
  std::vector<std::pair<const char *, Value>> choices;

  Value operator()(const std::string &name, const std::string &value) const {
    std::string list;
    for (const auto &[word, meaning] : choices) {
      if (value == word)
        return meaning;
      list.append(list.empty() ? "" : ", ").append(word);
    }
    throw_bad_value(name, value, "Expected one of: " + list + ".");
  }
  std::string takes() const {
    std::string list;
    for (const auto &[word, meaning] : choices)
      list.append(list.empty() ? "`" : ", `").append(word).append("`");
    return list;
  }
  std::string text(const Value &value) const {
    for (const auto &[word, meaning] : choices)
      if (meaning == value)
        return std::string("`") + word + "`";
    return {};
  }
};

/* What a function makes of the value, with words for the documentation. */
template <class Parse> struct As {
  Parse *parse;
  const char *words;

  auto operator()(const std::string &name, const std::string &value) const { return parse(name, value); }
  std::string takes() const { return words; }
};
template <class Parse> As(Parse *, const char *) -> As<Parse>;

/* A text, as it is given, if `check` throws no BadInput. */
struct Text {
  void (*check)(const std::string &name, const std::string &value) = [](const std::string &, const std::string &) {};
  const char *words = "";

  std::string takes() const { return words; }

  std::string operator()(const std::string &name, const std::string &value) const {
    check(name, value);
    return value;
  }
};

/* For a Text: the error does not show it. */
inline void check_not_empty(const std::string &name, const std::string &value) {
  if (value.empty())
    refuse_value(name, "It is empty.");
}

}  // namespace outbox
