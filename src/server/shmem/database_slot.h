/* database_slot.h: what launcher, workers and sessions tell one another of a database. */
#pragma once

#include "server/base/clock.h"

extern "C" {
#include "port/atomics.h"
}

#define OUTBOX_MAX_DATABASES 4096

/* What the launcher knows of a database. The last two are in no need of workers until CREATE or ALTER EXTENSION. */
typedef enum DatabaseState {
  DATABASE_FREE,      /* nobody's slot; next: UNKNOWN */
  DATABASE_UNKNOWN,   /* a worker must look; next: ANNOUNCED, OTHER_VERSION, NO_OUTBOX, FREE */
  DATABASE_ANNOUNCED, /* newly found or made, no pause of earlier failures applies; next: ACTIVE, IDLE, OTHER_VERSION,
                         NO_OUTBOX, FREE */
  DATABASE_ACTIVE,    /* its workers run; next: IDLE, ANNOUNCED, OTHER_VERSION, NO_OUTBOX, FREE */
  DATABASE_IDLE,      /* nothing is due, its workers leave; next: ACTIVE (called, or something is due), ANNOUNCED,
                         OTHER_VERSION, NO_OUTBOX, FREE */
  DATABASE_OTHER_VERSION, /* the extension is not of the library's version; next: ANNOUNCED, NO_OUTBOX, FREE */
  DATABASE_NO_OUTBOX      /* no extension; next: ANNOUNCED, OTHER_VERSION, FREE */
} DatabaseState;

/* It has the extension, in the library's version. */
static inline bool database_has_outbox(DatabaseState state) {
  return state == DATABASE_ANNOUNCED || state == DATABASE_ACTIVE || state == DATABASE_IDLE;
}

typedef struct DatabaseSlot {
  Oid oid; /* InvalidOid = DATABASE_FREE */
  DatabaseState state;
  pid_t blocked_by_ddl_pid; /* a session that is about to drop, rename or copy the database: no worker may start */
  int workers;              /* shards are spread over so many; 0 = the launcher has not yet said */
  Moment idle_until;        /* DATABASE_IDLE: no worker starts until it is called, or until then, or until … */
  TimestampTz idle_due;     /* … the wall clock says that an event is due; DT_NOEND = none is scheduled */
  uint32 idle_settings;     /* settings_idle_hash() of the worker that saw it */
  uint64 expected_exits;    /* the workers, by index, that left for that reason */
  pg_atomic_uint32 wakeup_requested; /* 1: something was committed that maybe no worker has heard of */
} DatabaseSlot;

/* The highest position drawn in a database since the server started; beside DatabaseSlot, so that draws do not
 * disturb those who read that. */
typedef struct DrawnPosition {
  Oid sequence; /* whose positions these are: InvalidOid = nobody's */
  pg_atomic_uint64 highest;
} DrawnPosition;

/* Why a database has no worker: worker_health.h. Beside DatabaseSlot, which the launcher copies each round. */
typedef struct WorkerHealth {
  Moment wanted_since; /* a worker is wanted and none has a slot; MOMENT_NONE = all is well */
  int failures;        /* unexpected ends in a row, until one has lived for a minute */
  TimestampTz failed_at;
  Moment next_start; /* not before */
  char failure[200]; /* what the last one said before it ended; empty = nothing */
} WorkerHealth;

/* Finds or makes (then the lock must be held exclusively) a database's slot. NULL when there is none, or the table is
 * full. */
DatabaseSlot *shared_database(Oid database, bool create);

/* The only writer of DatabaseSlot.state. The lock must be held exclusively. */
void database_change_state(DatabaseSlot *slot, DatabaseState next);

/* After a commit, without the lock: the launcher starts this database's workers if they are at rest. Once until
 * one of them has come. */
void shared_request_workers(void);

/* Is this database at rest? */
bool shared_is_idle(void);

/* The highest position drawn in this database from its sequence since the server started, 0 = none is known; NULL
 * while the launcher has not met the database. */
pg_atomic_uint64 *shared_drawn(Oid sequence);
