/*
 * options.h: options of CREATE SERVER and CREATE USER MAPPING, and the checks of their values.
 */
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <stdexcept>
#include <string>

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

/* The name of an option. A name that more than its row uses is one constant, so a misspelt name does not compile. It
 * becomes a text by itself; a text never becomes a name. */
struct OptionName {
  const char *text;
  explicit constexpr OptionName(const char *text_) : text(text_) {}
  operator std::string() const { return text; }
};

/* Names that several tables have. */
inline constexpr OptionName URL{"url"}, FORMAT{"format"}, SOURCE{"source"}, HEADERS{"headers"}, USER{"user"},
    PASSWORD{"password"}, TOKEN{"token"};

/* The form of an option's values: each has one syntax, for all options. */
enum class OptionForm {
  Word,     /* true, false, or one of some words */
  Number,   /* whole; of bytes also with a unit: 16MB */
  Duration, /* 15s */
  List,     /* items with commas between */
  Template, /* text with ${variables} */
  Object,   /* a flat JSON object */
  Rate,     /* 100/s */
  Text      /* anything else, as it is: a name, a URL, a secret, PEM */
};
const char *form_text(OptionForm form);

/* A known option: where it may be set, by whom, and what the documentation says. option_table.h makes it. */
struct OptionSpec {
  OptionName name;
  bool in_server = false;
  bool in_mapping = false;
  bool secret = false; /* never allowed in a server, never shown in a message */
  bool superuser = false;
  OptionForm form = OptionForm::Text;
  const char *unit = "";        /* of a number: what it counts */
  const char *description = ""; /* in Markdown */
  std::string fallback = {};    /* what holds without it, in Markdown */
  std::string takes = {};       /* which values, in Markdown */
};

const std::string *find_option(const Options &options, OptionName name); /* null if it is not set */

/* Throws a BadInput that shows the value. */
[[noreturn]] void throw_bad_value(const std::string &name, const std::string &value, std::string detail,
                                  std::string hint = {});
/* Throws BadInput if the option is set: it has no effect with the other options, so it is probably a mistake. */
void refuse_without_meaning(const Options &options, OptionName name, const std::string &reason);
/* For a value that may be secret: the error says what was expected and never shows the value. */
[[noreturn]] void refuse_value(const std::string &name, std::string detail, std::string hint = {});

/* Parsers of values. Each throws a BadInput that says what was expected. */
bool parse_bool(const std::string &name, const std::string &value);
int64_t parse_int(const std::string &name, const std::string &value, int64_t min, int64_t max);
/* '500ms', '15s', '5min' or '5m', '2h', '1d'; a number without unit is refused, except 0. */
std::chrono::milliseconds parse_duration(const std::string &name, const std::string &value,
                                         std::chrono::milliseconds min, std::chrono::milliseconds max);
std::string duration_text(std::chrono::milliseconds duration); /* as parse_duration() reads it */

/* In bytes: '1048576', '1024kB', '1MB'. */
size_t parse_size(const std::string &name, const std::string &value, size_t min, size_t max);
std::string size_text(size_t size);

}  // namespace outbox
