/*
 * record.h: writes down how flights ended: delivered rows leave (or move to SENT), failed ones get their next time,
 * dead ones move to FAILED. A row that a person holds is skipped and recorded later; it is never sent again.
 */
#pragma once

#include "server/base/clock.h"

/* Moves between statuses are DELETE + INSERT, never an UPDATE of status: one concurrent partition move would make
 * everybody's SKIP LOCKED fail. What moves unchanged: */
#define MOVED_COLUMNS                                                                                                \
  "id, aggregate_type, aggregate_id, event_type, payload, payload_bytes, content_type, headers, partition_key, "     \
  "dedup_key, seq, created_at, available_at, position, sink, xact, origin"

/* The failed attempts with one more, in SQL, whatever number the owner of the table wrote there. */
#define ONE_MORE_ATTEMPT "least(greatest(attempts, 0), 2147483646) + 1"

/* What a redriven event says that came too late, in SQL. */
#define REDRIVEN_TOO_LATE(overtaken_by)                                                                              \
  "pg_catalog.format('redriven too late: the later event of its key at position %s was delivered meanwhile; "        \
  "outbox.redrive() with force sends it late', " overtaken_by ") || coalesce('; before that: ' || last_error, '')"

/* In a transaction. Marks the flights it recorded; flights_settle_ended() after the commit frees them. */
void record_ended(Now now);

/* The transaction failed in it. True when a smaller part should be tried at once: one row that cannot be written down
 * (a person's trigger or constraint) is found by halving, and then waits alone and ever longer. */
bool record_aborted(Now now, const char *error);

/* Such a row is not found yet, or waits. */
bool record_in_trouble(void);

/* After the commit: counters, and the keys that may go on. */
void record_committed(Now now);
