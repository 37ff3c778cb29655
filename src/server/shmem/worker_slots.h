/* worker_slots.h: the workers of all databases. The worker's own part is process/worker_slot.h. */
#pragma once

#include "dispatch/shard_set.h"
#include "server/base/clock.h"

extern "C" {
#include "port/atomics.h"
#include "storage/latch.h"
}

#define OUTBOX_MAX_WORKERS 128
#define OUTBOX_MAX_DRAINING 16

/* Shards that a worker gave away while it has events of this sink in flight: nobody claims more of them before. */
typedef struct DrainingShards {
  Oid server; /* the sink, known by either: it may be renamed, or dropped and made anew */
  char name[NAMEDATALEN];
  dispatch::ShardSet shards;
} DrainingShards;

/* Each of them may be FREE next, since a worker may end at any time. */
typedef enum WorkerState {
  WORKER_FREE,     /* nobody's slot; next: STARTING */
  WORKER_STARTING, /* it connects, and looks for the extension and its sinks; next: RUNNING, FREE */
  WORKER_RUNNING,  /* it has something to do, or may have soon; next: IDLE, LEAVING, FREE */
  WORKER_IDLE,     /* nothing is due before `idle_until`; next: RUNNING, LEAVING, FREE */
  WORKER_LEAVING   /* it claims nothing any more, and records what ends; next: FREE */
} WorkerState;

typedef struct WorkerSlot {
  WorkerState state;
  pid_t pid; /* 0 = WORKER_FREE; cleared on exit only by its owner */
  Oid database;
  int index;                 /* of the database's workers */
  dispatch::ShardSet shards; /* its own: no other slot of the database has them */
  DrainingShards draining[OUTBOX_MAX_DRAINING];
  int n_draining;
  dispatch::ShardSet draining_others; /* of any sink: more sinks than `draining` has room for */
  Latch *latch;
  pg_atomic_uint32 needs_wakeup;   /* 1: the next commit must set the latch; 2: it must call the launcher */
  pg_atomic_uint32 recalled;       /* 1: outbox_internal.rescan_queue may have rows */
  pg_atomic_uint32 shards_changed; /* 1: shards may be free, or due to another worker */
  pg_atomic_uint32 slot_revoked;   /* 1: another database waits for this slot, … */
  TimestampTz started_at;
  Moment slot_taken;
  Moment last_loop;
  TimestampTz last_loop_at; /* the same */
  Moment revoked_since;     /* … since then: slot_sharing.h */
  Moment idle_until;        /* WORKER_IDLE: nothing of its own is to be done before */
  TimestampTz idle_due;     /* and no event is due before the wall clock says so */
  uint64 memory;            /* bytes, of the process */
  char activity[64];
} WorkerSlot;

/* The only writer of WorkerSlot.state. The lock must be held exclusively. */
void worker_change_state(WorkerSlot *slot, WorkerState next);

/* The workers of a database look at their shards again. The lock must be held. */
void shared_shards_changed(Oid database);

/* Ends a database's workers (SIGTERM). Returns how many there are. */
int shared_stop_workers(Oid database);
