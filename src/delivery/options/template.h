/*
 * template.h: text with variables, such as the topic 'outbox.event.${aggregate_type}'. Parsed once, filled in for
 * every event.
 */
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "delivery/delivery.h"
#include "delivery/options/field.h"

namespace outbox {

class Template {
public:
  /* Throws BadInput, in the name of option `name`, for an unknown variable or one that does not end. */
  static Template parse(const std::string &name, std::string_view text);
  /* A single variable. */
  static Template of(Field field);

  /* Replaces what is in `out`, whose memory is used again. False when a variable has no value in this event; `out`
   * is of no use then. */
  bool render(const ob_event &event, std::string &out) const;
  /* Likewise; bytes in variables that no URI reference can hold are percent-encoded. */
  bool render_uri(const ob_event &event, std::string &out) const;
  /* Likewise, but for those that are to be kept. */
  bool render_encoded(const ob_event &event, bool (*keep)(char), std::string &out) const;

  /* The first variable that has no value in this event, as ${...}; empty when all have one. `or_empty`: an empty text
   * is none. */
  std::string missing(const ob_event &event, bool or_empty = false) const;

  /* Set when the whole template is one variable. */
  const Field *single() const { return parts_.size() == 1 && parts_[0].variable ? &parts_[0].field : nullptr; }

  /* The text between the variables, for checks of its characters. */
  std::string literals() const;
  bool has_variables() const;
  /* "aggregate_type, header.tenant". */
  std::string variables() const;

  /* The same with "*" for each variable. */
  std::string glob() const;

private:
  struct Part {
    bool variable;
    Field field;
    std::string text; /* the literal, or the variable as it was written */
  };
  std::vector<Part> parts_;
};

/* Both throw BadInput. `others`: what may stand there besides fields. */
[[noreturn]] void throw_unknown_variable(const std::string &option, std::string_view wanted,
                                         const std::vector<std::string_view> &others = {});
[[noreturn]] void throw_no_value(const std::string &option, const std::string &variable);

}  // namespace outbox
