/*
 * shared_state.h: the shared memory of backends, launcher and workers. It holds counters, flags and pointers to
 * latches of PGPROCs, and no pointer to a process's own memory or file descriptor.
 *
 * shared_state() returns NULL when the library is not in shared_preload_libraries.
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
  LWLock *lock;        /* guards everything below except the atomics */
  TimestampTz made_at; /* the server's start, or its restart after a process crashed */
  pid_t launcher_pid;
  Latch *launcher_latch;
  bool rescan;            /* pg_database has changed */
  bool crashes_counted;   /* the launcher has read storage/crash_record.h */
  bool out_of_slots;      /* the launcher found no free background worker slot */
  Moment launcher_looked; /* its last round */
  DatabaseSlot databases[OUTBOX_MAX_DATABASES];
  WorkerHealth health[OUTBOX_MAX_DATABASES]; /* of the database at that index */
  DrawnPosition drawn[OUTBOX_MAX_DATABASES]; /* of the database at that index */
  WorkerSlot workers[OUTBOX_MAX_WORKERS];
  SinkStats sinks[OUTBOX_MAX_SINKS];
  pg_atomic_uint32 n_probes; /* slots in use: usually 0, so that workers need not read the slots */
  uint64 last_probe;
  ProbeSlot probes[OUTBOX_MAX_PROBES];
} SharedState;

/* Requests the shared memory. From _PG_init, while shared_preload_libraries are loaded. */
void shared_state_request(void);

/* NULL when the library is not in shared_preload_libraries. */
SharedState *shared_state(void);

/* Sets the launcher's latch, if a launcher runs. Takes no lock. */
void shared_wake_launcher(void);
