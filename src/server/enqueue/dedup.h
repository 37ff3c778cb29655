/* dedup.h: within outbox.dedup_window a dedup key belongs to one event, whatever the status of that event. */
#pragma once

#include "server/base/server.h"

extern "C" {
#include "utils/uuid.h"
}

/* Claims the key for this event, and waits for a concurrent transaction that writes the same key. Returns false when
 * the key belongs to another event, whose id it stores in `first`. Between owner_enter() and owner_leave(). */
bool dedup_claim(Datum key, Datum event_id, pg_uuid_t *first);

/* After a user has deleted a pending event: frees its key, unless another row of the event exists. In a transaction.
 */
void dedup_release(Datum key, Datum event_id, int64 position);

/* Raises the error that a unique index would raise. */
[[noreturn]] void dedup_report_duplicate(Datum key);
