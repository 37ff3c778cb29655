/* peer_error.h: why a peer cannot be used, for a sink's last error and the steps of a probe. */
#pragma once

#include <stdexcept>
#include <string>

#include "delivery/kind.h"

namespace outbox {

/* The connection is of no use any more. `step`: what was being done, as a probe names it. */
struct PeerError : std::runtime_error {
  const char *step;
  ob_reason reason;
  std::string hint;
  PeerError(const char *step_, ob_reason reason_, const std::string &fact, std::string hint_ = {})
      : std::runtime_error(fact), step(step_), reason(reason_), hint(std::move(hint_)) {}
  std::string text() const { return hint.empty() ? what() : what() + (": " + hint); }
};

/* The sink is being closed, or the probe is over. */
struct Cancelled : std::exception {};

}  // namespace outbox
