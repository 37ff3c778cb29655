/* database_scan.h: which databases there are. */
#pragma once

#include "server/base/server.h"

/* Brings the launcher's table of databases in line with pg_database; forgets the counters of those that are gone. */
void scan_databases(void);
