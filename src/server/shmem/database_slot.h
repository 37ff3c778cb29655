/* database_slot.h: what launcher, workers and sessions tell one another of a database. */
#pragma once

#include "server/base/clock.h"

extern "C" {
#include "port/atomics.h"
}

#define OUTBOX_MAX_DATABASES 4096

/* What the launcher knows of a database. */
typedef enum DatabaseState {
  DATABASE_UNKNOWN, /* a worker must look */
  DATABASE_HAS_OUTBOX,
  DATABASE_HAS_OTHER_VERSION, /* the library delivers what it knows: after ALTER EXTENSION UPDATE */
  DATABASE_HAS_NONE
} DatabaseState;

typedef struct DatabaseSlot {
  Oid oid; /* InvalidOid = free */
  DatabaseState state;
  bool fresh;      /* CREATE EXTENSION has just been here: no pause of earlier failures applies */
  pid_t aside_for; /* a session that is about to drop, rename or copy the database: no worker may start */
  int workers;     /* lanes are spread over so many; 0 = the launcher has not yet said */
  bool at_rest;    /* nothing is due: its workers leave, and none starts until it is called, or until … */
  Moment rest_until;
  TimestampTz rest_due;    /* … the wall clock says that an event is due; DT_NOEND = none is scheduled */
  uint32 rest_settings;    /* settings_of_rest() of the worker that saw it */
  uint64 resting;          /* the workers, by index, that left for that reason */
  pg_atomic_uint32 called; /* 1: something was committed that maybe no worker has heard of */
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

/* After a commit, without the lock: the launcher starts this database's workers if they are at rest. Once until
 * one of them has come. */
void shared_call_workers(void);

/* Is this database at rest? */
bool shared_at_rest(void);

/* The highest position drawn in this database from its sequence since the server started, 0 = none is known; NULL
 * while the launcher has not met the database. */
pg_atomic_uint64 *shared_drawn(Oid sequence);
