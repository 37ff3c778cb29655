/* server_errors.h: what an error of Redis says about an event, its stream, and the server. */
#pragma once

#include <string>
#include <string_view>

#include "delivery/kind.h"

namespace outbox::redis {

enum class Fault {
  Event,   /* this event can never be stored */
  Unknown, /* this event or the server */
  Stream,  /* no entry can be added to this stream */
  Server,  /* no entry can be added at all */
  Host     /* no entry can be added at this host: another one may be the master */
};

struct ServerError {
  Fault fault;
  ob_reason reason;
  std::string text; /* what the server said, and what to do */
};

ServerError read_error(std::string_view said);

}  // namespace outbox::redis
