/* origin.h: the cluster and database that wrote an event. A restored or replicated row keeps its origin. */
#pragma once

#include "server/base/server.h"

/* The `origin` of events that this database writes: a hash of outbox.cluster_name (if empty: of the system
 * identifier) and of the database's OID. */
int64 origin_here(void);
