/* update_trigger.h: users' UPDATEs and DELETEs of events. */
#pragma once

#include "server/base/server.h"

/* For the INSERT trigger: is an UPDATE moving this row to another partition? PostgreSQL does that as DELETE and
 * INSERT, right after the BEFORE UPDATE trigger. The answer is true for one call only. */
bool is_partition_move(int64 position);

struct TriggerRow;

/* Is the event's sink of kind outbox_manual? Workers do not deliver its events and need no wake-up. */
bool event_is_manual(const struct TriggerRow *row);
