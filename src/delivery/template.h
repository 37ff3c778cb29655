/*
 * template.h: text with variables, such as the topic 'outbox.event.${aggregate_type}'. Parsed once, filled in for
 * every event.
 */
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "delivery.h"

namespace outbox {

class Template {
public:
  /* Throws BadInput, in the name of option `name`, for an unknown variable or one that does not end. */
  static Template parse(const std::string &name, std::string_view text);

  /* Replaces what is in `out`, whose memory is used again. */
  void render(const ob_event &event, std::string &out) const;

  /* The text between the variables, for checks of its characters. */
  std::string literals() const;

private:
  struct Part {
    const ob_text ob_event::*field; /* null: literal */
    std::string literal;
  };
  std::vector<Part> parts_;
};

}  // namespace outbox
