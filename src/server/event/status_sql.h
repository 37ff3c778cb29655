/* status_sql.h: pieces of the statements that move rows from one status to another. */
#pragma once

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
