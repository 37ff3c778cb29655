/* sink_stats.h: the counters of each sink, over all workers of its database. */
#pragma once

#include "server/base/clock.h"
#include "server/shmem/latency.h"

#include "delivery/delivery.h"

#define OUTBOX_MAX_SINKS 4096     /* 6 MB; further ones deliver, and are not counted */
#define OUTBOX_COUNTED_WORKERS 32 /* of one database */

/* How long a sink has been failing without a success: worker_stops.h. */
typedef struct FailingClock {
  bool known;       /* what outbox_internal.failing_sinks had of it before the server started was read */
  bool has_row;     /* it stands there */
  int64 written_ms; /* with so much */
  int64 failed_ms;
  TimestampTz last_failed_at; /* 0 = it does not fail */
  Moment last_failed;         /* the same; MOMENT_NONE = before the server started */
} FailingClock;

/* One per sink and database. Survives the worker; gone with the server. */
typedef struct SinkStats {
  Oid database; /* InvalidOid = free */
  Oid server;
  char state[40];
  uint32 in_flight[OUTBOX_COUNTED_WORKERS]; /* by worker index */
  int64 turns; /* in which the workers keep the sink's rate limit together: delivery.h, ob_sink_share() */
  uint64 delivered;
  uint64 retried;
  uint64 failed;
  uint64 redriven_late; /* by force, after later events of their keys */
  char last_error[512];
  TimestampTz last_error_at;
  TimestampTz since; /* the counters count; 0 = since this memory was made */
  FailingClock failing;
  double rate; /* events/s, exponentially smoothed over about 10 s */
  Moment rate_at;
  uint64 failures[OB_REASONS]; /* deliveries that failed, and peers that could not be reached */
  Latency latency;             /* enqueued, or due if later, to acknowledgement */
  /* By worker index: of its shards' rows without available_at none that the sink still has stands before. 0 =
   * unknown.
   */
  int64 low_watermark[OUTBOX_COUNTED_WORKERS];
} SinkStats;

/* Finds or makes a sink's counters; takes the lock. NULL when the table is full or there is no preload. */
SinkStats *shared_sink_stats(Oid database, Oid server, bool create);

/* Puts an error text into a sink's statistics, cut at a whole character. Takes the lock. */
void shared_sink_error(SinkStats *stats, const char *error, TimestampTz at);

/* So many were delivered since the last look: the rate follows, smoothed over ten seconds. The lock must be held
 * exclusively.
 */
void shared_sink_rate(SinkStats *stats, uint64 delivered, Moment now);

/* Counters begin anew: of one sink, or (server invalid) of all of the database. Takes the lock. */
void shared_sink_reset(Oid database, Oid server);

/* Forgets the counters of a dropped sink (server valid) or of a dropped database (server invalid). */
void shared_sink_forget(Oid database, Oid server);
