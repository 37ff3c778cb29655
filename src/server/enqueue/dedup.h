/* dedup.h: a dedup key names one event within outbox.dedup_window, whatever became of that event. */
#pragma once

#include "server/base/server.h"

extern "C" {
#include "utils/uuid.h"
}

/* Takes the key for this event, waiting for a concurrent transaction that wrote the same key. False when it names
 * another event already; `first` is that one's id. Inside owner_enter(). */
bool dedup_claim(Datum key, Datum event_id, pg_uuid_t *first);

/* A user cancelled a pending event: unless another row of it is left, its key may be used again. */
void dedup_release(Datum key, Datum event_id, int64 position);

/* As a unique index would say it. */
[[noreturn]] void dedup_report_duplicate(Datum key);
