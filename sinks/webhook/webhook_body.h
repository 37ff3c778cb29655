/*
 * webhook_body.h: the option `body`: a JSON template for a request's body. Outside quotes a variable is a JSON
 * value ({"id": ${id}, "payload": ${payload}}), inside quotes a part of a string ("order-${aggregate_id}").
 */
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "delivery/options/field.h"

namespace outbox {

class BodyTemplate {
public:
  static constexpr OptionForm form = OptionForm::Template;
  /* An empty text means no body. Throws BadInput if the result would not be JSON. */
  static BodyTemplate parse(const std::string &option, const std::string &text);

  bool empty() const { return parts_.empty(); }
  /* Appends the body. Never fails: a missing value is null, or an empty string within quotes. */
  void render(const ob_event &event, std::string &out) const;

private:
  enum class What { Literal, Payload, Headers, Field };
  struct Part {
    What what = What::Literal;
    bool in_text = false;  // inside quotes
    Field field;
    std::string literal;
  };

  void add_variable(const std::string &option, std::string_view name, bool in_text);

  std::vector<Part> parts_;
};

}  // namespace outbox
