/*
 * option_table.h: an option is one row: its name, the member of a configuration that it sets, the values that it
 * takes (option_values.h, or any parser), and a text. What DDL checks, what a sink gets, the names in hints and the
 * tables of the documentation come from this row, and the default is the member's initial value:
 *
 *   row("connect_timeout", &ConnectOptions::connect_timeout, Duration{100ms, 5min}, "How long connecting ..."),
 *
 * The text is Markdown, with links from the top of the source tree.
 */
#pragma once

#include <algorithm>
#include <concepts>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "delivery/options/option_values.h"
#include "delivery/options/options.h"

namespace outbox {

template <class Config> struct Row : OptionSpec {
  /* Sets the member. Throws BadInput. */
  std::function<void(Config &, const std::string &name, const std::string &value)> read;

  Row(OptionSpec spec, decltype(read) how) : OptionSpec(std::move(spec)), read(std::move(how)) {}
  /* A row of a base class is a row of each class that derives from it. */
  template <class Base>
  requires(std::derived_from<Config, Base> && !std::same_as<Config, Base>) Row(Row<Base> base)
      : OptionSpec(static_cast<const OptionSpec &>(base)), read(std::move(base.read)) {}

  /* By default, the owner sets the option in the server. */
  Row in_user_mapping() && {
    in_server = false;
    in_mapping = true;
    return std::move(*this);
  }
  Row in_both() && {
    in_mapping = true;
    return std::move(*this);
  }
  /* In the user mapping, and never shown. */
  Row as_secret() && {
    secret = true;
    return std::move(*this).in_user_mapping();
  }
  Row by_superuser() && {
    superuser = true;
    return std::move(*this);
  }
  /* Where values of the member's type do not say it. */
  Row in_form(OptionForm form_) && {
    form = form_;
    return std::move(*this);
  }
  /* For the documentation: what happens without the option, where the member does not say it. */
  Row otherwise(std::string words) && {
    fallback = std::move(words);
    return std::move(*this);
  }
};

/* The name of an option: a literal, or a constant if other code uses the name, too. */
struct RowName : OptionName {
  constexpr RowName(const char *name) : OptionName(name) {}
  constexpr RowName(OptionName name) : OptionName(name) {}
};

template <class Value> struct NotOptional { using Type = Value; };
template <class Value> struct NotOptional<std::optional<Value>> { using Type = Value; };

/* The form of values that parse to `Value`. */
template <class Value> struct FormOf {
  static constexpr OptionForm form = [] {
    if constexpr (requires { Value::form; })
      return Value::form;
    else
      return OptionForm::Text;
  }();
};
template <class Item> struct FormOf<std::vector<Item>> { static constexpr OptionForm form = OptionForm::List; };
template <> struct FormOf<std::vector<std::pair<std::string, std::string>>> {
  static constexpr OptionForm form = OptionForm::Object; /* HttpHeaders */
};
template <> struct FormOf<std::map<std::string, std::string>> {
  static constexpr OptionForm form = OptionForm::Object;
};

/* A default value as the documentation shows it; empty for a value that has no short text. */
template <class Values, class Value> std::string default_text(const Values &values, const Value &value) {
  if constexpr (requires { values.text(value); })
    return values.text(value);
  else if constexpr (std::same_as<Value, std::string>)
    return value.empty() ? std::string() : "`" + value + "`";
  else if constexpr (requires { value.text(); })
    return "`" + value.text() + "`";
  else
    return {};
}
template <class Values, class Value>
std::string default_text(const Values &values, const std::optional<Value> &value) {
  return value ? default_text(values, *value) : std::string();
}

/* An option of the server. */
template <class Config, class Member, class Values>
Row<Config> row(RowName name, Member Config::*member, const Values &values, const char *text) {
  OptionSpec spec{.name = name, .in_server = true, .description = text};
  if constexpr (requires { Values::form; })
    spec.form = Values::form;
  else
    spec.form = FormOf<std::decay_t<decltype(values(std::string(), std::string()))>>::form;
  if constexpr (requires { values.unit; })
    spec.unit = values.unit;
  spec.fallback = default_text(values, Config().*member);
  if constexpr (requires { values.takes(); })
    spec.takes = values.takes();
  return {std::move(spec), [member, values](Config &config, const std::string &option, const std::string &value) {
            config.*member = static_cast<typename NotOptional<Member>::Type>(values(option, value));
          }};
}

/* The rows of options that are kept in a member of the configuration. */
template <class Config, class Part>
std::vector<Row<Config>> within(Part Config::*part, const std::vector<Row<Part>> &rows) {
  std::vector<Row<Config>> all;
  all.reserve(rows.size());
  for (const Row<Part> &row : rows)
    all.emplace_back(row, [part, read = row.read](Config &config, const std::string &name, const std::string &value) {
      read(config.*part, name, value);
    });
  return all;
}

/* Rows, and lists of rows, of `Config` and its bases. A row takes the place of an earlier one of its name. */
template <class Config, class... Parts> std::vector<Row<Config>> joined(Parts... parts) {
  std::vector<Row<Config>> all;
  auto add = [&all](Row<Config> row) {
    std::erase_if(all, [&row](const Row<Config> &each) {
      return std::string_view(each.name.text) == row.name.text && each.in_server == row.in_server;
    });
    all.push_back(std::move(row));
  };
  auto add_part = [&add](auto part) {
    if constexpr (requires { part.begin(); })
      for (auto &row : part)
        add(std::move(row));
    else
      add(std::move(part));
  };
  (add_part(std::move(parts)), ...);
  return all;
}

/* The options of a kind. A table is never destroyed: make it with new. */
template <class Config> class OptionTable {
public:
  /* Takes rows and lists of rows, as joined() does. */
  template <class... Parts>
  explicit OptionTable(Parts... parts)
      : rows_(joined<Config>(std::move(parts)...)), specs_(rows_.begin(), rows_.end()) {}

  const std::vector<OptionSpec> &specs() const { return specs_; }

  /* Parses the options of a server or user mapping into `config`. Throws BadInput. */
  void read(const Options &given, ob_scope scope, Config &config) const {
    for (const Row<Config> &row : rows_)
      if (scope == OB_SERVER ? row.in_server : row.in_mapping)
        read_row(given, row, config);
  }
  /* Parses the option `name` only. */
  void read_one(const Options &given, OptionName name, Config &config) const {
    for (const Row<Config> &row : rows_)
      if (std::string_view(row.name.text) == name.text)
        read_row(given, row, config);
  }

private:
  static void read_row(const Options &given, const Row<Config> &row, Config &config) {
    if (const std::string *value = find_option(given, row.name))
      row.read(config, row.name, *value);
  }

  const std::vector<Row<Config>> rows_;
  const std::vector<OptionSpec> specs_;
};

}  // namespace outbox
