/*
 * former_schema.h: CREATE EXTENSION outbox WITH SCHEMA outbox, as the dumps of version 0.1.0 have it. Since then the
 * schema is part of the extension, which itself is in pg_catalog: PostgreSQL would refuse any other.
 */
#pragma once

#include "server/base/server.h"

extern "C" {
#include "nodes/plannodes.h"
}

/* The statement without the schema, or as it is. */
PlannedStmt *former_schema_left_out(PlannedStmt *planned);
