/*
 * shared_state.h: what backends, launcher and workers tell one another in shared memory. Counters, flags and
 * latches of the server's own PGPROCs only: never a heap pointer or a descriptor.
 *
 * Absent (shared_state() == NULL) when the library was not preloaded.
 */
#pragma once

#include "server/base/clock.h"
#include "server/shmem/lane_set.h"
#include "server/shmem/latency.h"

extern "C" {
#include "port/atomics.h"
#include "storage/latch.h"
#include "storage/lwlock.h"
}

#define OUTBOX_MAX_DATABASES 4096
#define OUTBOX_MAX_WORKERS 128
#define OUTBOX_MAX_SINKS 4096     /* 6 MB; further ones deliver, and are not counted */
#define OUTBOX_COUNTED_WORKERS 32 /* of one database */
#define OUTBOX_MAX_LANDING 16
#define OUTBOX_MAX_PROBES 64
#define OUTBOX_MAX_PROBE_STEPS 12

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

/* Lanes that a worker gave away while it has events of this sink in the air: nobody claims more of them before. */
typedef struct Landing {
  Oid server; /* the sink, known by either: it may be renamed, or dropped and made anew */
  char name[NAMEDATALEN];
  LaneSet lanes;
} Landing;

/* Why a database has no worker: worker_health.h. Beside DatabaseSlot, which the launcher copies each round. */
typedef struct WorkerHealth {
  Moment wanted_since; /* a worker is wanted and none has a slot; MOMENT_NONE = all is well */
  int failures;        /* unexpected ends in a row, until one has lived for a minute */
  TimestampTz failed_at;
  Moment next_start; /* not before */
  char failure[200]; /* what the last one said before it ended; empty = nothing */
} WorkerHealth;

typedef struct WorkerSlot {
  pid_t pid; /* 0 = free; cleared on exit only by its owner */
  Oid database;
  int index;     /* of the database's workers */
  LaneSet lanes; /* its own: no other slot of the database has them */
  Landing landing[OUTBOX_MAX_LANDING];
  int n_landing;
  LaneSet landing_others; /* of any sink: more sinks than `landing` has room for */
  Latch *latch;
  pg_atomic_uint32 armed;         /* 1: the next commit must set the latch; 2: it must call the launcher */
  pg_atomic_uint32 recalled;      /* 1: outbox.recalled may have rows */
  pg_atomic_uint32 lanes_changed; /* 1: lanes may be free, or due to another worker */
  pg_atomic_uint32 turn_is_over;  /* 1: another database waits for this slot, … */
  TimestampTz started_at;
  Moment turn_began;
  Moment last_loop;
  TimestampTz last_loop_at; /* the same */
  Moment turn_over;         /* … since then: turns.h */
  Moment idle_until;        /* nothing of its own is to be done before; MOMENT_NONE = it is busy */
  TimestampTz idle_due;     /* and no event is due before the wall clock says so */
  uint64 memory;            /* bytes, of the process */
  char activity[64];
} WorkerSlot;

/* How long a sink has been failing without a success: worker_stops.h. */
typedef struct FailingClock {
  bool known;       /* what outbox.failing_sinks had of it before the server started was read */
  bool has_row;     /* it stands there */
  int64 written_ms; /* with so much */
  int64 failed_ms;
  TimestampTz last_failed_at; /* 0 = it does not fail */
  Moment last_failed;         /* the same; MOMENT_NONE = before the server started */
} FailingClock;

/* One per sink and database. Survives the worker; gone with the server. */
typedef struct SinkStats {
  Oid database; /* InvalidOid = free */
  Oid server;
  char state[40];
  uint32 in_flight[OUTBOX_COUNTED_WORKERS]; /* by worker index */
  int64 turns; /* in which the workers keep the sink's rate limit together: delivery.h, ob_sink_share() */
  uint64 delivered;
  uint64 retried;
  uint64 failed;
  uint64 redriven_late; /* by force, after later events of their keys */
  char last_error[512];
  TimestampTz last_error_at;
  TimestampTz since; /* the counters count; 0 = since this memory was made */
  FailingClock failing;
  double rate; /* events/s, exponentially smoothed over about 10 s */
  Moment rate_at;
  uint64 failures[OB_REASONS]; /* deliveries that failed, and peers that could not be reached */
  Latency latency;             /* enqueued, or due if later, to acknowledgement */
  /* By worker index: of its lanes' rows without available_at none that the sink still has stands before. 0 = unknown.
   */
  int64 known_below[OUTBOX_COUNTED_WORKERS];
} SinkStats;

typedef enum ProbeState {
  PROBE_FREE,
  PROBE_WANTED, /* no worker has it yet */
  PROBE_RUNNING,
  PROBE_NO_SINK, /* the worker sees no such sink */
  PROBE_DONE
} ProbeState;

/* A session's question to a worker: outbox.probe(). The session that takes a slot also frees it. */
typedef struct ProbeSlot {
  ProbeState state;
  uint64 number; /* of the request, since the slot is used again */
  Oid database, server;
  bool send; /* a test event */
  Moment until;
  Latch *latch; /* the session's */
  int n_steps;
  ob_probe_step steps[OUTBOX_MAX_PROBE_STEPS];
} ProbeSlot;

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

/* Finds or makes (then the lock must be held exclusively) a database's slot. NULL when there is none, or the table is
 * full. */
DatabaseSlot *shared_database(Oid database, bool create);

/* Finds or makes a sink's counters; takes the lock. NULL when the table is full or there is no preload. */
SinkStats *shared_sink_stats(Oid database, Oid server, bool create);

/* Puts an error text into a sink's statistics, cut at a whole character. Takes the lock. */
void shared_sink_error(SinkStats *stats, const char *error, TimestampTz at);

/* So many were delivered since the last look: the rate follows, smoothed over ten seconds. The lock must be held
 * exclusively.
 */
void shared_sink_rate(SinkStats *stats, uint64 delivered, Moment now);

/* Counters begin anew: of one sink, or (server invalid) of all of the database. Takes the lock. */
void shared_sink_reset(Oid database, Oid server);

/* Forgets the counters of a dropped sink (server valid) or of a dropped database (server invalid). */
void shared_sink_forget(Oid database, Oid server);

/* After a commit, without the lock: the launcher starts this database's workers if they are at rest. Once until
 * one of them has come. */
void shared_call_workers(void);

/* Is this database at rest? */
bool shared_at_rest(void);

/* The highest position drawn in this database from its sequence since the server started, 0 = none is known; NULL
 * while the launcher has not met the database. */
pg_atomic_uint64 *shared_drawn(Oid sequence);

/* Sets the launcher's latch, if there is one. */
void shared_wake_launcher(void);

/* The workers of a database look at their lanes again. The lock must be held. */
void shared_lanes_changed(Oid database);

/* Ends a database's workers (SIGTERM). Returns how many there are. */
int shared_stop_workers(Oid database);
