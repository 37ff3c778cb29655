/* database_slot.h: the shared state of one database, for the launcher, workers and sessions. */
#pragma once

#include "server/base/clock.h"

extern "C" {
#include "port/atomics.h"
}

#define OUTBOX_MAX_DATABASES 4096

/* The launcher's knowledge of a database. The last two states need no worker until CREATE or ALTER EXTENSION. */
typedef enum DatabaseState {
  DATABASE_FREE,      /* the slot is unused; next: UNKNOWN */
  DATABASE_UNKNOWN,   /* a worker must look for the extension; next: ANNOUNCED, OTHER_VERSION, NO_OUTBOX, FREE */
  DATABASE_ANNOUNCED, /* the extension was found or created: workers start without a pause for earlier failures; next:
                         ACTIVE, IDLE, OTHER_VERSION, NO_OUTBOX, FREE */
  DATABASE_ACTIVE,    /* its workers run; next: IDLE, ANNOUNCED, OTHER_VERSION, NO_OUTBOX, FREE */
  DATABASE_IDLE, /* no event is due, its workers exit; next: ACTIVE (a wake-up was requested, or an event is due),
                    ANNOUNCED, OTHER_VERSION, NO_OUTBOX, FREE */
  DATABASE_OTHER_VERSION, /* the extension is not of the library's version; next: ANNOUNCED, NO_OUTBOX, FREE */
  DATABASE_NO_OUTBOX      /* no extension; next: ANNOUNCED, OTHER_VERSION, FREE */
} DatabaseState;

/* Does the database have the extension in the library's version? */
static inline bool database_has_outbox(DatabaseState state) {
  return state == DATABASE_ANNOUNCED || state == DATABASE_ACTIVE || state == DATABASE_IDLE;
}

typedef struct DatabaseSlot {
  Oid oid; /* InvalidOid = DATABASE_FREE */
  DatabaseState state;
  pid_t blocked_by_ddl_pid; /* the session whose DDL needs the database alone: no worker may start; 0 = none */
  int workers;              /* shards are divided among this number; 0 = not set by the launcher yet */
  Moment idle_until;        /* DATABASE_IDLE: a worker starts on a wake-up request, or at this moment, or … */
  TimestampTz idle_due;     /* … at this wall time, when an event is due; DT_NOEND = none is scheduled */
  uint32 idle_settings;     /* settings_idle_hash() of the worker that found the database idle */
  uint64 expected_exits;    /* bit i: the worker of index i is about to exit, and this is no failure */
  pg_atomic_uint32 wakeup_requested; /* 1: a commit may have woken no worker */
} DatabaseSlot;

/* The highest position that belongs to one drawn in a database since the server started. It is separate from
 * DatabaseSlot to keep these frequent writes out of the cache lines that others read. */
typedef struct DrawnPosition {
  Oid sequence; /* the sequence of the positions; InvalidOid = unused */
  pg_atomic_uint64 highest;
} DrawnPosition;

/* Why a database has no worker: worker_health.h. Separate from DatabaseSlot, which the launcher copies each round. */
typedef struct WorkerHealth {
  Moment wanted_since; /* the first worker should run and has no slot; MOMENT_NONE: it runs, or should not */
  int failures;        /* unexpected exits in a row; 0 again after a worker has run for 1 min */
  TimestampTz failed_at;
  Moment next_start; /* no worker starts before this moment */
  char failure[200]; /* the last error message of the worker that failed; empty = none */
} WorkerHealth;

/* Returns the database's slot, or NULL. With `create` it makes a missing one, unless the table is full; the lock must
 * then be held exclusively. Without `create` it may run without the lock. */
DatabaseSlot *shared_database(Oid database, bool create);

/* The only writer of DatabaseSlot.state. The lock must be held exclusively. */
void database_change_state(DatabaseSlot *slot, DatabaseState next);

/* Asks the launcher to start the idle workers of this database. Sets the launcher's latch once until a worker has
 * started. After a commit; takes no lock. */
void shared_request_workers(void);

/* Is this database in DATABASE_IDLE? Takes no lock. */
bool shared_is_idle(void);

/* The highest position that belongs to one drawn from this database's sequence since the server started; 0 = none is
 * known. Returns NULL
 * until the launcher has made a slot for the database. May take the lock. */
pg_atomic_uint64 *shared_drawn(Oid sequence);
