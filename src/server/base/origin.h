/* origin.h: whose event a row is. A restored or replicated row keeps the origin of the cluster that wrote it. */
#pragma once

#include "server/base/server.h"

/* This cluster and database, as events carry it in `origin`: a hash of outbox.cluster_name, or else of the system
 * identifier, and of the database's OID. */
int64 origin_here(void);
