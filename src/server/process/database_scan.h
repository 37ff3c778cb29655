/* database_scan.h: finds the server's databases. */
#pragma once

#include "server/base/server.h"

/* Updates the database slots from pg_database, and frees the counters of dropped databases. In the launcher, outside
 * a transaction. */
void scan_databases(void);
