/*
 * template.h: text with variables, such as the topic 'outbox.event.${aggregate_type}'. Parsed once, rendered for
 * every event.
 */
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "delivery/kind.h"
#include "delivery/options/field.h"

namespace outbox {

class Template {
public:
  static constexpr OptionForm form = OptionForm::Template;
  /* Throws BadInput about option `name` for an unknown or unterminated variable. */
  static Template parse(const std::string &name, std::string_view text);
  /* A template that is a single variable. */
  static Template of(Field field);

  /* Replaces the content of `out` and reuses its memory. Returns false if a variable has no value in this event;
   * `out` is then undefined. */
  bool render(const ob_event &event, std::string &out) const;
  /* Like render(), but percent-encodes bytes of variables that a URI reference cannot contain. */
  bool render_uri(const ob_event &event, std::string &out) const;
  /* Like render(), but percent-encodes all bytes of variables for which `keep` returns false. */
  bool render_encoded(const ob_event &event, bool (*keep)(char), std::string &out) const;

  /* The first variable without a value in this event, as ${...}; empty if all have one. `or_empty`: an empty text
   * counts as no value. */
  std::string missing(const ob_event &event, bool or_empty = false) const;

  /* The field, if the whole template is one variable; otherwise null. */
  const Field *single() const { return parts_.size() == 1 && parts_[0].variable ? &parts_[0].field : nullptr; }

  /* The text outside of variables, for checks of its characters. */
  std::string literals() const;
  bool has_variables() const;
  /* The names of the variables: "aggregate_type, header.tenant". */
  std::string variables() const;

  /* As it was parsed. */
  std::string text() const;

  /* The template with "*" in place of each variable. */
  std::string glob() const;

private:
  struct Part {
    bool variable;
    Field field;
    std::string text; /* literal text, or the variable as it was written */
  };
  std::vector<Part> parts_;
};

/* Both throw BadInput. `others`: variables that are allowed in addition to the fields. */
[[noreturn]] void throw_unknown_variable(const std::string &option, std::string_view wanted,
                                         const std::vector<std::string_view> &others = {});
[[noreturn]] void throw_no_value(const std::string &option, const std::string &variable);

}  // namespace outbox
