/*
 * claim_round.h: what the parts of one round of claiming share: the judge that decides about each row, the streams
 * that bring rows before it, the rows that somebody holds, and the locking at the end. claim.cpp conducts them.
 */
#pragma once

#include "server/event/event_row.h"
#include "server/inflight/flights.h"
#include "server/inflight/held_keys.h"
#include "server/sinks/worker_sinks.h"
#include "server/storage/row_lock.h"
#include "server/storage/sql.h"

extern "C" {
#include "utils/hsearch.h"
}

/* A read sees at most so many rows: the worker stays responsive, and one transaction short. */
#define READ_MAX 10000
#define READ_MIN 256

/* A round claims at most so much: until its commit each event exists twice more, as a row and as a copy of it. */
#define ROUND_BYTES (4 * 1024 * 1024)

typedef enum Verdict {
  TAKE,
  PASS, /* not now, or not ours: somebody else, another stream or a later moment sees to it */
  HOLD, /* mark it as waiting behind its key's failing event */
  STOP  /* its sink has no room, or (no sink) those that take it wait for it: the stream must come back to it */
} Verdict;

/* Where a row comes from: in order of position; of a transaction that committed late; from behind a key that drains;
 * due by its time; named by outbox.recalled, or busy before. */
typedef enum Stream { MAIN, LATE, HELD, DUE, RECALLED } Stream;

/* A row to be marked as held. */
typedef struct Mark {
  int64 position;
  ItemPointerData ctid;
  int64 group; /* 0 = it waits no more */
  Oid sink;
  uint64 key_hash;
} Mark;

/* What one round of claiming gathers; in the round's memory context. */
typedef struct Round {
  MemoryContext context;
  Now now;
  int free_flights;
  int64 free_bytes;
  Mark *marks;
  int n_marks, max_marks;
  int n_taken;
  HTAB *in_air;           /* keys that have flights; NULL until a redriven row asks */
  bool overruled;         /* a redriven row takes the lead of a key of which later rows may be in the batches */
  bool dropped;           /* rows that were taken and then not locked have left room */
  struct BusyRow *looked; /* taken off the list of busy rows */
  int n_looked;
  bool open; /* nothing of it is committed yet */
} Round;

extern Round claim_round;

void round_mark(Mark mark);

/* ---- judge.cpp ---- */

/* The rows of which origin are ours. */
void judge_init(int64 origin);

/* Is the row one that this worker delivers? `*sink` is its sink, or NULL. */
bool judge_is_ours(const EventRow *row, WorkerSink **sink);

/* Decides about one row, and takes it into its sink's batch or marks it as held. */
Verdict judge(const EventRow *row, Stream stream, WorkerSink **sink);

/* ---- streams.cpp ---- */

bool stream_main(Snapshot snapshot); /* true when there is more */
void stream_late(WorkerSink *sink, Snapshot snapshot);
bool stream_draining(WorkerSink *sink, Snapshot snapshot); /* likewise */
bool stream_due(WorkerSink *sink, Snapshot snapshot);      /* true when there is more */

/* ---- resumed.cpp ---- */

/* Those that wait for a topic and need not any longer; true when there are more. */
bool stream_resumed(WorkerSink *sink, Snapshot snapshot);

/* ---- redriven.cpp ---- */

/* Later events of its key are on their way: the row leads its key from now on, and is looked at again. */
bool redriven_must_wait(const WorkerSink *sink, const EventRow *row);

/* A row was taken into a batch. */
void redriven_saw_flight(const Flight *flight);

/* ---- recalled.cpp ---- */

/* Looks at single positions: judges each row, releases the keys that a row has left, and tells which had no room
 * (KEEP) or belong to another worker. */
typedef struct RecalledRow {
  int64 position;
  ItemPointerData ctid; /* in outbox.recalled */
  uint64 xact;          /* likewise */
  enum { GONE, KEEP, OTHERS, DONE } fate;
} RecalledRow;

typedef struct RecalledList {
  RecalledRow *rows;
  int n;
  RecalledRow **by_position; /* while they are looked at */
  bool wanted_again;         /* some had no room */
} RecalledList;

void recalled_look(RecalledList *list, Snapshot snapshot);

/* Reads a page of outbox.recalled; true when some rows were left for the next round. `more` when that may begin at
 * once. */
bool recalled_claim(Snapshot snapshot, bool *more);
/* The next read of it begins after here. */
void recalled_next_place(uint64 *xact, int64 *position);
/* Lanes were taken: what belonged to others is read again. */
void recalled_restart(void);
/* After an abort: what the round read of it comes again. */
void recalled_give_back(void);

/* A head can leave unseen: deleted in flight, recalled to another worker, truncated. Its key goes on. Many heads are
 * looked up in slices; true when one had left, so that more may have. */
bool recalled_check_heads(Snapshot snapshot);

/* ---- busy_rows.cpp ---- */

/* Somebody holds this row, or it has lost the lead of its key: it is looked at again soon, and until it is taken or
 * marked its key does not drain past it. */
void busy_row_add(int64 position, Oid sink, uint64 key_hash);

/* The first one of this key; PG_INT64_MAX when there is none. */
int64 busy_row_first(const HeldKey *key);

/* The first one of all; PG_INT64_MAX when there is none. */
int64 busy_rows_first(void);

/* So many are held that no more are looked for. */
bool busy_rows_full(void);

/* Looks again at those whose time has come. */
void busy_rows_claim(Snapshot snapshot);
/* After an abort: they are looked at again. */
void busy_rows_give_back(void);

/* ---- claim_lock.cpp ---- */

/* Locks what was taken and what is to be marked; drops from the batches what could not be locked, and marks. */
void claim_lock_and_mark(void);
