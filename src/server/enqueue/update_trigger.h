/* update_trigger.h: users' UPDATEs and DELETEs of events. */
#pragma once

#include "server/base/server.h"

/* For the INSERT trigger: is this row just being moved between partitions by an UPDATE? PostgreSQL does that as
 * DELETE and INSERT, right after the BEFORE UPDATE trigger. Asking once is all. */
bool is_partition_move(int64 position);

struct TriggerRow;

/* Is its sink one that no worker delivers to? Then the worker need not hear of it. */
bool event_is_manual(const struct TriggerRow *row);
