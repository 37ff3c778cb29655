/* acknowledgement.h: what the answer to a published message means for its event. */
#pragma once

#include <string>

#include "delivery/engine/sink.h"
#include "protocol.h"

namespace outbox::nats {

struct Acknowledgement {
  Outcome outcome = Outcome::Sent; /* Deferred: the subject cannot be used now */
  ob_reason reason = OB_REASON_NONE;
  std::string why; /* what is wrong with the subject, or the message */
  bool duplicate =
      false; /* Sent, and the stream has dropped the message, because it has had its Nats-Msg-Id before */
};

Acknowledgement read_acknowledgement(const Operation &message);
/* The answer of a stream that has stored a message, as a text for people. */
std::string place_of(std::string_view json);

/* The error in an answer of JetStream, as it is to be shown; empty if it is none. */
std::string error_of(std::string_view json);
/* Whether the answer to $JS.API.STREAM.INFO is of a stream that acknowledges nothing. */
bool is_no_ack(std::string_view json);
/* The names in the answer to $JS.API.STREAM.NAMES. */
std::vector<std::string> streams_of(std::string_view json);

}  // namespace outbox::nats
