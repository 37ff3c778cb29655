/* status_sql.h: parts of the statements that move rows from one status to another. */
#pragma once

/* A row changes its status by DELETE and INSERT, and never by UPDATE: a concurrent move between partitions makes
 * every FOR UPDATE SKIP LOCKED that meets it fail. These columns are copied unchanged: */
#define MOVED_COLUMNS                                                                                                \
  "id, aggregate_type, aggregate_id, event_type, payload, payload_bytes, content_type, headers, partition_key, "     \
  "dedup_key, seq, created_at, available_at, position, sink, xact, origin, application"

/* The number of attempts plus one, in SQL. The table's owner may have written any number there. */
#define ONE_MORE_ATTEMPT "least(greatest(attempts, 0), 2147483646) + 1"

/* The error, in SQL, of an event that was redriven after a later event of its key was delivered. */
#define REDRIVEN_TOO_LATE(overtaken_by)                                                                              \
  "outbox_internal.error_text(pg_catalog.format('redriven too late: the later event of its key at position %s was "  \
  "delivered meanwhile; "                                                                                            \
  "outbox.redrive() with force sends it late', " overtaken_by ") || coalesce('; before that: ' || last_error, ''))"
