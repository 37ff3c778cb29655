/*
 * options.h: the options that a person gives in CREATE SERVER and CREATE USER MAPPING, and how they are checked.
 */
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "no_postgres.h"

#include "delivery.h"

namespace outbox {

/* A person's mistake, in PostgreSQL's message style. */
struct BadInput : std::runtime_error {
  ob_error_kind kind;
  std::string subject, detail, hint;
  BadInput(ob_error_kind kind_, std::string subject_, const std::string &message, std::string detail_ = {},
           std::string hint_ = {})
      : std::runtime_error(message), kind(kind_), subject(std::move(subject_)), detail(std::move(detail_)),
        hint(std::move(hint_)) {}
};

using Options = std::map<std::string, std::string>;

/* One known option: where it belongs, who may set it, and a function that throws BadInput for a bad value. */
struct OptionSpec {
  const char *name;
  bool in_server;
  bool in_mapping;
  bool secret; /* never in a server, never in a message */
  bool superuser;
  void (*check)(const std::string &name, const std::string &value); /* may be null: any text */
  const char *description;                                          /* with unit, default and range */
};

/* Events, aggregates, ordered, on_failure, retry, max_attempts, retention: what every kind has. */
const std::vector<OptionSpec> &common_options();

/* For a value that may be a secret: says what was expected and never what was given. */
[[noreturn]] void refuse_value(const std::string &name, std::string detail, std::string hint = {});

/* Values. Each throws BadInput that says what was expected. */
bool parse_bool(const std::string &name, const std::string &value);
bool parse_on_failure(const std::string &name, const std::string &value); /* true = hold */
int64_t parse_int(const std::string &name, const std::string &value, int64_t min, int64_t max);
/* '500ms', '15s', '5min' or '5m', '2h', '1d'; a bare number is refused except 0. Milliseconds. */
std::chrono::milliseconds parse_duration(const std::string &name, const std::string &value,
                                         std::chrono::milliseconds min, std::chrono::milliseconds max);

}  // namespace outbox
