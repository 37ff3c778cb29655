/* webhook_forward.h: which of an event's headers a webhook's request carries. Whoever may enqueue chooses those, and
 * they stand beside the sink's credentials: so the sink's owner lists them, and some are never taken. */
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace outbox {

class ForwardedHeaders {
public:
  static constexpr const char *defaults = "traceparent, tracestate, baggage, x-request-id, x-correlation-id";
  /* Names, separated by commas; a name may end with *. Empty: none. Throws BadInput. */
  static ForwardedHeaders parse(const std::string &option, const std::string &value);
  bool takes(std::string_view name) const;

private:
  std::vector<std::string> names_, prefixes_;
};

}  // namespace outbox
