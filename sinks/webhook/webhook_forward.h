/* webhook_forward.h: which of an event's headers are sent with a webhook request. Any user who may enqueue chooses
 * these headers, and they appear beside the sink's credentials. So the sink's owner lists the names, and some names
 * are never sent. */
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "delivery/options/options.h"

namespace outbox {

class ForwardedHeaders {
public:
  static constexpr OptionForm form = OptionForm::List;
  static constexpr const char *defaults = "traceparent, tracestate, baggage, x-request-id, x-correlation-id";
  /* Parses names separated by commas; a name may end with *. Empty: none. Throws BadInput. */
  static ForwardedHeaders parse(const std::string &option, const std::string &value);
  bool takes(std::string_view name) const;

private:
  std::vector<std::string> names_, prefixes_;
};

}  // namespace outbox
