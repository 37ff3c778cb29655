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

/* Shards that a worker gave away while it has events of this sink in flight. Their new worker claims no event of the
 * sink until those have ended. */
typedef struct DrainingShards {
  Oid server; /* a sink matches by OID or by name, since it may be renamed, or dropped and created again */
  char name[NAMEDATALEN];
  dispatch::ShardSet shards;
} DrainingShards;

/* FREE can follow each state, since a worker can exit at any time. */
typedef enum WorkerState {
  WORKER_FREE,     /* the slot is unused; next: STARTING */
  WORKER_STARTING, /* the worker connects and reads the extension and its sinks; next: RUNNING, FREE */
  WORKER_RUNNING,  /* the worker delivers, or waits for events; next: IDLE, LEAVING, FREE */
  WORKER_IDLE,     /* nothing is due before `idle_until`; next: RUNNING, LEAVING, FREE */
  WORKER_LEAVING   /* the worker claims no more events, and records outcomes; next: FREE */
} WorkerState;

typedef struct WorkerSlot {
  WorkerState state;
  pid_t pid; /* 0 = WORKER_FREE; only the worker itself clears it, on exit */
  Oid database;
  int index;                 /* number of the worker within its database, from 0 */
  dispatch::ShardSet shards; /* the shards it owns: no other slot of the database has them */
  DrainingShards draining[OUTBOX_MAX_DRAINING];
  int n_draining;
  dispatch::ShardSet draining_others; /* of sinks that do not fit into `draining`: draining for every sink */
  Latch *latch;
  pg_atomic_uint32 needs_wakeup;     /* 1: the next commit must set the latch; 2: it must wake the launcher */
  pg_atomic_uint32 rescan_requested; /* 1: outbox_internal.rescan_queue may have rows */
  pg_atomic_uint32 shards_changed;   /* 1: the worker must compute its shards again */
  TimestampTz started_at;
  Moment slot_taken; /* when the worker took the slot: slot_sharing.h */
  Moment last_loop;
  TimestampTz last_loop_at; /* last_loop by the wall clock */
  Moment revoked_since;     /* another database waits for the slot: slot_sharing.h; read without the lock */
  Moment idle_until;        /* WORKER_IDLE: the worker has no work before this moment */
  TimestampTz idle_due;     /* WORKER_IDLE: no event is due before this wall time */
  uint64 memory;            /* of the process, in bytes */
  char activity[64];
  TimestampTz routing_since; /* events wait to be routed; 0 = none does */
  char routing_error[200];   /* of the last routing; empty = none */
} WorkerSlot;

/* The only writer of WorkerSlot.state. The lock must be held exclusively. */
void worker_change_state(WorkerSlot *slot, WorkerState next);

/* Makes the workers of a database compute their shards again. The lock must be held. */
void shared_shards_changed(Oid database);

/* Sends SIGTERM to the database's workers and returns their number. Takes the lock. */
int shared_stop_workers(Oid database);
