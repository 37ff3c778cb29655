/*
 * worker_sinks.h: the sinks of the worker's database: opened, reopened when the catalog changes, closed when gone;
 * and for each the place up to which it has claimed.
 */
#pragma once

#include <span>

#include "dispatch/due_cursor.h"
#include "dispatch/in_flight.h"
#include "dispatch/shards.h"
#include "server/catalog/sink_common.h"
#include "server/shmem/shared_state.h"
#include "server/sinks/sink_state.h"

#include "delivery/delivery.h"

/* A transaction that committed late: its rows at or below the cursor are looked up by its id. */
typedef struct LateTransaction {
  uint64 xid;
  int64 after; /* claimed up to here */
  int64 upto;  /* the cursor when it was found: what lies above comes by itself */
} LateTransaction;

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

  /* how far it has come */
  int64 cursor;            /* every row at or below was seen, but for late and recalled ones */
  int64 rewound_to;        /* the smallest cursor since the claimed batch is held in hand: submit.h */
  int64 first_foreign;     /* the first row of another origin that was passed; 0 = none */
  int64 low_watermark;     /* its low watermark: sink_cursor.h */
  int64 unrouted_at;       /* it would take the event here, which has no sink yet: it reads no farther */
  dispatch::DueCursor due; /* of scheduled and retried rows; its next is DT_NOEND when there is none */
  struct {
    bool going;
    char reason[288];        /* how their errors begin */
    TimestampTz tried_since; /* instead of the reason: since when they have been tried in vain; 0 = by the reason */
    TimestampTz since;       /* who began to wait later waits for something new */
    TimestampTz after;       /* looked through up to here, … */
    int64 after_position;
  } resumed; /* events that wait no longer: sink_early_retry.h */
  LateTransaction *late;
  int n_late, max_late;
  struct SinkPlace *before; /* all this at the start of the round; memory of the round */

  int in_flight;
  int unrecorded; /* ended, not yet written down */
  int64 bytes_in_flight;
  int room;                 /* how many more it takes in this round */
  int64 room_bytes;         /* after so much it has no more room */
  bool last_failed;         /* the event that ended last, and it waits */
  TimestampTz outage_since; /* of an outage that is not known to be over; 0 = there is none */
  bool starved;             /* it had more to claim than room */
  ob_sink_status status;
  uint64 failed_tries;         /* of the status, when it was last looked at */
  uint64 n_failures;           /* likewise, and counted … */
  uint64 failures[OB_REASONS]; /* … so many of them */
  SinkStats *stats;            /* may be NULL */

  /* claimed in the last round, in order, and not yet submitted */
  ob_event *batch;
  dispatch::InFlightEvent **batch_events;
  int n_batch, max_batch;
  bool reading; /* takes part in the running read */
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
