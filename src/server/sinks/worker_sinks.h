/* worker_sinks.h: the sinks of the worker's database: opened, opened anew when the catalog changes, closed when gone.
 */
#pragma once

#include <span>

#include "dispatch/in_flight.h"
#include "dispatch/shards.h"
#include "dispatch/sink_cursor.h"
#include "server/catalog/sink_common.h"
#include "server/shmem/shared_state.h"
#include "server/sinks/sink_state.h"

#include "delivery/delivery.h"

struct WorkerSink {
  char name[NAMEDATALEN]; /* hash key: first */
  Oid oid;
  char kind[NAMEDATALEN];
  uint64 fingerprint; /* of options and user mapping */
  uint64 reload;      /* the last one that found it in the catalog */
  SinkState state;
  ob_sink *handle;  /* while it is open or closing; else NULL */
  Moment reopen_at; /* SINK_MISCONFIGURED: not before */
  char open_error[512];

  SinkCommon common;
  dispatch::SinkShards shards;
  dispatch::SinkInFlight events;
  dispatch::SinkCursor *cursor; /* never NULL */

  int in_flight;
  int unrecorded; /* ended, not yet written down */
  int64 bytes_in_flight;
  bool last_failed; /* the event that ended last, and it waits */
  ob_sink_status status;
  uint64 failed_tries;         /* of the status, when it was last looked at */
  uint64 n_failures;           /* likewise, and counted … */
  uint64 failures[OB_REASONS]; /* … so many of them */
  SinkStats *stats;            /* may be NULL */

  /* claimed in the last round, in order, and not yet submitted */
  ob_event *batch;
  dispatch::InFlightEvent **batch_events;
  int n_batch, max_batch;
};

/* Begins to try its options, open or not. NULL with *error filled when that cannot start. */
ob_probe *worker_sink_probe(const WorkerSink *sink, int timeout_ms, bool send, ob_error *error);

void worker_sinks_init(ob_engine *engine, int worker_index);

/* Defaults have changed: read everything again. */
void worker_sinks_settings_changed(void);

/* What became of the sinks, for those who remember something of them. */
typedef struct SinkChanges {
  bool reloaded;    /* the catalog was read: the set or its routes may have changed */
  bool hold_begins; /* dead letters hold their keys in one that is new or altered: they must be read */
} SinkChanges;

/* Reads the catalog when it has changed. In a transaction. */
SinkChanges worker_sinks_reload(void);

/* No more events for this one. It becomes `closed` (SINK_CLOSED, _STOPPED or _DROPPED) once its requests in flight
 * have ended; those that still run after so many milliseconds are given up. */
void worker_sink_close(WorkerSink *sink, SinkState closed, int grace_ms);

/* A stopped, dropped or misconfigured sink is to be opened anew. */
void worker_sink_reopen(WorkerSink *sink);

/* No more events for any: what is not on the wire comes back, what is ends normally, within the endpoints' timeouts.
 */
void worker_sinks_close(void);

/* Finishes closing ones, opens what can be opened (if any `may_open`), asks each how much it takes now. It runs no
 * SQL. `waits_for_standby`: nothing is handed to them; outbox.sinks says so. */
SinkChanges worker_sinks_refresh(Now now, bool may_open, bool waits_for_standby);

/* By the name that a row gives, which may be a former one. NULL when there is none. */
WorkerSink *worker_sink_find(const char *name, int length);
WorkerSink *worker_sink_of(Oid oid);

/* All of them, in no order; valid until the next reload or refresh. */
std::span<WorkerSink *> worker_sinks_all(void);
WorkerSink **worker_sinks_all(int *n);

/* The earliest moment at which a sink wants to be looked at again. */
Moment worker_sinks_next_moment(Moment now);
/* When the first scheduled or retried event is due, of a sink that takes one; DT_NOEND = none. */
TimestampTz worker_sinks_next_due(void);

void worker_sink_event_claimed(WorkerSink *sink, uint32 bytes);
void worker_sink_event_returned(WorkerSink *sink, uint32 bytes);
void worker_sink_event_ended(WorkerSink *sink, uint32 bytes);
void worker_sink_event_not_ended(WorkerSink *sink, uint32 bytes); /* takes that back */
