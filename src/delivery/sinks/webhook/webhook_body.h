/*
 * webhook_body.h: a request's body made by option `body`: JSON with variables. Outside quotes a variable is a JSON
 * value
 * ({"id": ${id}, "payload": ${payload}}), inside quotes a part of a text ("order-${aggregate_id}").
 */
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "delivery/options/field.h"

namespace outbox {

class BodyTemplate {
public:
  /* Empty text: no body. Throws BadInput for what is no JSON. */
  static BodyTemplate parse(const std::string &option, const std::string &text);

  bool empty() const { return parts_.empty(); }
  /* Appends the body. Never fails: what an event does not have is null, or no text. */
  void render(const ob_event &event, std::string &out) const;

private:
  enum class What { Literal, Payload, Headers, Field };
  struct Part {
    What what = What::Literal;
    bool in_text = false;  // within quotes
    Field field;
    std::string literal;
  };

  void add_variable(const std::string &option, std::string_view name, bool in_text);

  std::vector<Part> parts_;
};

}  // namespace outbox
