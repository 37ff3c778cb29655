/*
 * options.h: options of CREATE SERVER and CREATE USER MAPPING, and the checks of their values.
 */
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <map>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "delivery/no_postgres.h"

#include "delivery/kind.h"

namespace outbox {

/* An error that a user can correct, in PostgreSQL's message style. */
struct BadInput : std::runtime_error {
  ob_error_kind kind;
  std::string subject, detail, hint;
  BadInput(ob_error_kind kind_, std::string subject_, const std::string &message, std::string detail_ = {},
           std::string hint_ = {})
      : std::runtime_error(message), kind(kind_), subject(std::move(subject_)), detail(std::move(detail_)),
        hint(std::move(hint_)) {}
};

using Options = std::map<std::string, std::string>;

/* The owner of the foreign server. A superuser's sink may connect to any network. */
enum class Owner { User, Superuser };

/* A function that throws BadInput for an invalid value; null: any text is valid. */
using OptionCheck = std::function<void(const std::string &name, const std::string &value)>;

/* The name of an option. Each name is one constant, which the table of options and all that reads the option use, so
 * a misspelt name does not compile. It becomes a text by itself; a text never becomes a name. */
struct OptionName {
  const char *text;
  explicit constexpr OptionName(const char *text_) : text(text_) {}
  operator std::string() const { return text; }
};

/* The options that all kinds have. */
inline constexpr OptionName EVENTS{"events"}, AGGREGATES{"aggregates"}, MATCH{"match"}, ORDERED{"ordered"},
    ON_DEAD_LETTER{"on_dead_letter"}, RETRY{"retry"}, MAX_ATTEMPTS{"max_attempts"}, RETENTION{"retention"},
    MAX_PAYLOAD{"max_payload"};
/* Names that several tables have. */
inline constexpr OptionName URL{"url"}, FORMAT{"format"}, SOURCE{"source"}, HEADERS{"headers"}, USER{"user"},
    PASSWORD{"password"}, BEARER_TOKEN{"bearer_token"};

/* A known option: where it may be set, and by whom. */
struct OptionSpec {
  OptionName name;
  bool in_server = false;
  bool in_mapping = false;
  bool secret = false; /* never allowed in a server, never shown in a message */
  bool superuser = false;
  OptionCheck check = nullptr;
  const char *description = ""; /* in Markdown */
  std::string fallback = {};    /* what holds without it, in Markdown */
  std::string takes = {};       /* which values, in Markdown */
};

/* An OptionCheck: whether `parse` takes the value. */
template <auto parse> void check(const std::string &name, const std::string &value) {
  (void)parse(name, value);
}

inline OptionSpec server_option(OptionName name, OptionCheck check, const char *description) {
  return {.name = name, .in_server = true, .check = check, .description = description};
}
inline OptionSpec superuser_option(OptionName name, OptionCheck check, const char *description) {
  return {.name = name, .in_server = true, .superuser = true, .check = check, .description = description};
}
inline OptionSpec mapping_option(OptionName name, OptionCheck check, const char *description) {
  return {.name = name, .in_mapping = true, .check = check, .description = description};
}
inline OptionSpec secret_option(OptionName name, OptionCheck check, const char *description) {
  return {.name = name, .in_mapping = true, .secret = true, .check = check, .description = description};
}
inline OptionSpec server_or_mapping_option(OptionName name, OptionCheck check, const char *description) {
  return {.name = name, .in_server = true, .in_mapping = true, .check = check, .description = description};
}

/* Those of the options that all kinds have. */
const std::vector<OptionSpec> &common_options();

const std::string *find_option(const Options &options, OptionName name); /* null if it is not set */

/* Reads an option into `into`, which is left as it is if the option is not set. `parse` takes a name and a value. */
template <class Parse, class Value>
void read_option(const Options &options, OptionName name, Parse parse, Value &into) {
  if (const std::string *value = find_option(options, name))
    into = parse(name, *value);
}

/* Throws a BadInput that shows the value. */
[[noreturn]] void throw_bad_value(const std::string &name, const std::string &value, std::string detail,
                                  std::string hint = {});
/* Throws BadInput if the option is set: it has no effect with the other options, so it is probably a mistake. */
void refuse_without_meaning(const Options &options, OptionName name, const std::string &reason);
/* For a value that may be secret: the error says what was expected and never shows the value. */
[[noreturn]] void refuse_value(const std::string &name, std::string detail, std::string hint = {});

/* Parsers of values. Each throws a BadInput that says what was expected. */
bool parse_bool(const std::string &name, const std::string &value);
bool parse_on_dead_letter(const std::string &name, const std::string &value); /* true = block */
int64_t parse_int(const std::string &name, const std::string &value, int64_t min, int64_t max);
/* '500ms', '15s', '5min' or '5m', '2h', '1d'; a number without unit is refused, except 0. */
std::chrono::milliseconds parse_duration(const std::string &name, const std::string &value,
                                         std::chrono::milliseconds min, std::chrono::milliseconds max);
std::string duration_text(std::chrono::milliseconds duration); /* as parse_duration() reads it */

/* In bytes: '1048576', '1024kB', '1MB'. */
size_t parse_size(const std::string &name, const std::string &value, size_t min, size_t max);
std::string size_text(size_t size);
size_t parse_max_payload(const std::string &name, const std::string &value);

/* An option with a fixed set of values; the first one is the default. */
template <class Value>
Value parse_choice(const Options &options, OptionName name,
                   std::initializer_list<std::pair<const char *, Value>> choices) {
  const std::string *given = find_option(options, name);
  std::string list;
  for (const auto &[text, value] : choices) {
    if (!given || *given == text)
      return value;
    list += (list.empty() ? "" : ", ") + std::string(text);
  }
  throw_bad_value(name, *given, "Expected one of: " + list + ".");
}

}  // namespace outbox
