/* sink_secrets.h: opens a checker with the options of PUBLIC's user mapping, for users who may read them. */
#pragma once

#include "server/base/server.h"

#include "delivery/delivery.h"

/* Returns a checker that has the secrets of the server's user mapping too; the caller closes it. NULL when the
 * current user may not read them, or when they do not parse; the reason is not reported, since it could reveal part
 * of a secret. In a transaction.
 */
ob_checker *sink_checker_with_secrets(Oid server, const char *kind);
