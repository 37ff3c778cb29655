/* worker_sinks.h: the sinks of the worker's database: opened, opened anew when the catalog changes, closed when gone.
 */
#pragma once

#include <span>

#include "dispatch/round_sink.h"
#include "server/catalog/sink_common.h"
#include "server/shmem/shared_state.h"
#include "server/sinks/sink_state.h"

#include "delivery/delivery.h"

struct SinkName {
  char name[NAMEDATALEN];
};

struct WorkerSink : SinkName, dispatch::RoundSink { /* the hash key first; id() is the OID of the server */
  char kind[NAMEDATALEN];
  uint64 fingerprint; /* of options and user mapping */
  uint64 reload;      /* the last reload that found it in the catalog */
  SinkState state;
  ob_sink *handle;  /* while it is open or closing; else NULL */
  Moment reopen_at; /* SINK_MISCONFIGURED: not before */
  Moment open_at;   /* not opened before, because something else is at work: careful.h */
  char open_error[512];

  SinkCommon common;
  char record_error[OUTBOX_RECORD_ERROR]; /* of not_recorded */
  ob_sink_status status;
  uint32 pauses_ended;         /* stats->pauses_ended, up to which pauses were ended */
  uint64 failed_tries;         /* status.failed_tries, when it was last looked at */
  uint64 n_failures;           /* status.n_failures, up to which failures were counted */
  uint64 unanswered;           /* the same of status.unanswered */
  uint64 failures[OB_REASONS]; /* status.failures, up to which they were counted */
  SinkStats *stats;            /* may be NULL */

  uint64 careful_turn; /* the last one in which it got an event: careful.h */

  ob_event *batch; /* of batch_events */
  int max_batch;
};

/* A hash key stands at the beginning of its entry, and entries are zeroed memory. */
static_assert(sizeof(SinkName) == NAMEDATALEN && std::is_trivially_copyable_v<WorkerSink>);

static inline void sink_tell(const WorkerSink *sink, const ob_sink_order &order) {
  sink->handle->kind->sink_tell(sink->handle, &order);
}

/* Starts a probe with the sink's options, whether it is open or not; `topics` as in ob_probe_start(). NULL with
 * *error filled when that fails. */
ob_probe *worker_sink_probe(const WorkerSink *sink, int timeout_ms, bool send, const char *topics, ob_error *error);

void worker_sinks_init(ob_engines *engine, int worker_index);

/* Defaults of options may have changed: the next worker_sinks_reload() reads all sinks again. */
void worker_sinks_settings_changed(void);

/* Has the catalog changed since the last reload, for example the names of sinks? */
bool worker_sinks_stale(void);

/* Reads the catalog when it has changed; true: the set of sinks or their routes may have changed. In a transaction.
 */
bool worker_sinks_reload(void);

/* The sink gets no more events. It becomes `closed` (SINK_CLOSED, _STOPPED or _DROPPED) when its requests in flight
 * have ended; those that still run after `grace_ms` are given up. */
void worker_sink_close(WorkerSink *sink, SinkState closed, int grace_ms);

/* A stopped, dropped or misconfigured sink is to be opened anew. */
void worker_sink_reopen(WorkerSink *sink);

/* No sink gets more events. Queued events are returned, and requests in flight end within the endpoints' timeouts. */
void worker_sinks_close(void);

/* The worker ends: what is in flight now has no answer any more (SinkStats.unanswered). */
void worker_sinks_leave(void);

/* Finishes closing sinks, opens those that can be opened (none unless `may_open`), and asks each how much it takes
 * now. It runs no SQL. `waits_for_standby`: nothing is submitted meanwhile, and outbox.sinks says so. */
void worker_sinks_refresh(Now now, bool may_open, bool waits_for_standby);

/* The sink of this name; NULL when there is none. */
WorkerSink *worker_sink_find(const char *name, int length);
WorkerSink *worker_sink_of(Oid oid);

/* All sinks, in no order; valid until the next reload or refresh. */
std::span<WorkerSink *> worker_sinks_all(void);

/* The earliest moment at which a sink wants to be looked at again. */
Moment worker_sinks_next_moment(Moment now);
/* The sink is open, and does not wait until its destination can take something. */
bool worker_sink_is_ready(const WorkerSink *sink);
