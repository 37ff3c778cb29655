/* sink_secrets.h: PUBLIC's user mapping, for those whom PostgreSQL shows it. */
#pragma once

#include "server/base/server.h"

#include "delivery/delivery.h"

/* A checker that knows the secrets of the server's user mapping too, to be closed by the caller. NULL when the
 * current user may not read them, or when they do not parse: nothing is said of why, lest it say something of them.
 */
ob_checker *sink_checker_with_secrets(Oid server, const char *kind);
