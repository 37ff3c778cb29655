/*
 * shared_state.h: what backends, launcher and workers tell one another in shared memory. Counters, flags and
 * latches of the server's own PGPROCs only: never a heap pointer or a descriptor.
 *
 * Absent (shared_state() == NULL) when the library was not preloaded.
 */
#pragma once

#include "server/shmem/database_slot.h"
#include "server/shmem/probe_slot.h"
#include "server/shmem/sink_stats.h"
#include "server/shmem/worker_slots.h"

extern "C" {
#include "storage/lwlock.h"
}

typedef struct SharedState {
  LWLock *lock;        /* guards everything below but the atomics */
  TimestampTz made_at; /* at the server's start, and after the crash of one of its processes */
  pid_t launcher_pid;
  Latch *launcher_latch;
  bool rescan;            /* pg_database has changed */
  bool out_of_slots;      /* the launcher could not start a worker */
  Moment launcher_looked; /* when it last went round */
  DatabaseSlot databases[OUTBOX_MAX_DATABASES];
  WorkerHealth health[OUTBOX_MAX_DATABASES]; /* of the database at that index */
  DrawnPosition drawn[OUTBOX_MAX_DATABASES]; /* likewise */
  WorkerSlot workers[OUTBOX_MAX_WORKERS];
  SinkStats sinks[OUTBOX_MAX_SINKS];
  pg_atomic_uint32 n_probes; /* slots in use: mostly none */
  uint64 last_probe;
  ProbeSlot probes[OUTBOX_MAX_PROBES];
} SharedState;

/* Asks for the memory; from _PG_init under shared_preload_libraries. */
void shared_state_request(void);

/* NULL without the preload. */
SharedState *shared_state(void);

/* Sets the launcher's latch, if there is one. */
void shared_wake_launcher(void);
