/*
 * claim_round.h: what the parts of one round of claiming share: how far it may go, what it has taken and what it is
 * to mark. claim.cpp conducts them.
 */
#pragma once

#include "server/base/clock.h"

extern "C" {
#include "storage/itemptr.h"
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
 * due by its time; named by outbox.recalled, or locked before. */
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
  int free_events;
  int64 free_bytes;
  Mark *marks;
  int n_marks, max_marks;
  int n_taken;
  HTAB *in_air;    /* keys that have events in flight; NULL until a redriven row asks */
  bool overruled;  /* a redriven row takes the lead of a key of which later rows may be in the batches */
  bool dropped;    /* rows that were taken and then not locked have left room */
  bool open;          /* nothing of it is committed yet */
  const char *reason; /* of the last verdict: a literal */
  int64 blocker;      /* likewise: the event that is the reason, or 0 */
} Round;

extern Round claim_round;

/* The row is to be marked at the end of the round. */
void round_mark(Mark mark);
