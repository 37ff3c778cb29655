/* sink_stats.h: the counters of each sink, over all workers of its database. */
#pragma once

#include "server/base/clock.h"
#include "server/shmem/latency.h"

#include "delivery/delivery.h"

#define OUTBOX_MAX_SINKS 4096     /* 9.7 MB; further sinks deliver, but have no counters */
#define OUTBOX_COUNTED_WORKERS 32 /* workers per database with their own counters */
#define OUTBOX_RECORD_ERROR 256

/* For how long a sink has failed without a success: worker_stops.h. */
typedef struct FailingClock {
  bool known;       /* the sink's row of outbox_internal.failing_sinks was read since the server started */
  bool has_row;     /* the sink has a row there */
  int64 written_ms; /* `failed_ms` as written there */
  int64 failed_ms;
  TimestampTz last_failed_at; /* 0 = the sink does not fail */
  Moment last_failed;         /* last_failed_at by the monotonic clock; MOMENT_NONE = before the server started */
} FailingClock;

/* The state of a sink in a worker, from the best to the worst. outbox.sinks shows the worst of all workers, because
 * events of that worker's shards may not move. */
typedef enum SinkSignal {
  SIGNAL_NONE,
  SIGNAL_IDLE,
  SIGNAL_DELIVERING,
  SIGNAL_DEGRADED,
  SIGNAL_WAITING_FOR_STANDBY,
  SIGNAL_DISABLED,
  SIGNAL_CIRCUIT_OPEN,
  SIGNAL_MISCONFIGURED,
  SIGNAL_STOPPED /* outbox.stopped_sinks says why */
} SinkSignal;

/* Events that have ended and whose recording fails. */
typedef struct Unrecorded {
  uint32 n;
  uint32 sent; /* of them were delivered: they would be sent again */
} Unrecorded;

/* One per sink and database. It outlives workers, and is lost at a restart of the server. */
typedef struct SinkStats {
  Oid database; /* InvalidOid = free */
  Oid server;
  uint8 state[OUTBOX_COUNTED_WORKERS];      /* SinkSignal, by worker index */
  uint32 in_flight[OUTBOX_COUNTED_WORKERS]; /* by worker index */
  /* Events that have ended and whose recording fails, by worker index. `unrecorded_since` also tells a new worker
   * that the recording of the sink has failed; 0 = it succeeds. */
  Unrecorded unrecorded[OUTBOX_COUNTED_WORKERS];
  TimestampTz unrecorded_since;
  char record_error[OUTBOX_RECORD_ERROR];
  /* By worker index: the endpoint has asked for a pause until this time; 0 = it has not. */
  TimestampTz paused_until[OUTBOX_COUNTED_WORKERS];
  uint32 pauses_ended; /* calls of outbox.resume() that end such pauses */
  int64 turns;         /* the workers share the sink's rate limit by it: ob_sink_order in delivery/kind.h */
  uint64 delivered;
  uint64 retried;
  uint64 failed;
  uint64 redriven_late; /* redriven with force, after later events of their keys */
  uint64 unanswered;    /* sent, and sent again because no answer came: they may have arrived twice */
  char last_error[512];
  TimestampTz last_error_at;
  TimestampTz since; /* the start of the counters; 0 = SharedState.made_at */
  FailingClock failing;
  double rate; /* events/s, exponentially smoothed over about 10 s */
  Moment rate_at;
  uint64 failures[OB_REASONS]; /* failed deliveries and unreachable peers, by reason */
  Latency latency;             /* from the enqueue (or available_at, if later) to the acknowledgement */
  /* By worker index: all pending rows of the sink in the worker's shards that have no available_at are at this
   * position or after it. 0 = unknown.
   */
  int64 low_watermark[OUTBOX_COUNTED_WORKERS];
} SinkStats;

/* Returns a sink's counters, which `create` makes if there are none. NULL when the table is full or the library is
 * not preloaded. Takes the lock. */
SinkStats *shared_sink_stats(Oid database, Oid server, bool create);

/* Stores the sink's last error, cut at a character boundary. Takes the lock. */
void shared_sink_error(SinkStats *stats, const char *error, TimestampTz at);

/* Stores how many events of the sink a worker cannot record, and why. `stuck`: it does not know that it can record
 * any. Takes the lock when that has changed. */
void shared_sink_unrecorded(SinkStats *stats, int worker, Unrecorded now, bool stuck, const char *error,
                            TimestampTz at);

/* The worker with this index has nothing of the sink any more. With a successor, its state remains until that one
 * knows better. */
void shared_sink_worker_left(SinkStats *stats, int worker, bool has_successor);

/* The worst state in these workers (bit i: the worker with index i), as outbox.sinks shows it; NULL if none has one.
 */
const char *shared_sink_state(const SinkStats *stats, uint64 workers);

/* When the last pause ends for which the endpoint has asked one of the workers; 0 = there is none. */
TimestampTz shared_sink_paused_until(const SinkStats *stats);

/* Adds the number of events delivered since the last call to the rate, which is smoothed over 10 s. The lock must be
 * held exclusively.
 */
void shared_sink_rate(SinkStats *stats, uint64 delivered, Moment now);

/* Resets the counters of one sink, or with InvalidOid as server those of all sinks of the database. Takes the lock.
 */
void shared_sink_reset(Oid database, Oid server);

/* Frees the counters of a dropped sink, or with InvalidOid as server those of a dropped database. Takes the lock. */
void shared_sink_forget(Oid database, Oid server);
