/* manual_claim.h: what the parts of one outbox.claim() share: the rows that it reads, what holds their keys, and what
 * it takes. */
#pragma once

#include "server/manual/manual_sink.h"

extern "C" {
#include "storage/itemptr.h"
#include "utils/hsearch.h"
#include "utils/snapshot.h"
#include "utils/timestamp.h"
#include "utils/uuid.h"
}

/* A row that may be given out. */
typedef struct Candidate {
  int64 position;
  ItemPointerData ctid;
  uint64 key_hash; /* 0 = waits for nobody */
  pg_uuid_t id;
} Candidate;

/* What holds a key, by the snapshot of this pass. */
typedef struct ClaimKey {
  uint64 hash; /* the hash key: first */
  bool known;
  bool closed;     /* leased by somebody, or one of its rows could not be had: nothing of it in this pass */
  int64 dead;      /* the dead letter that it waits for; PG_INT64_MAX = none */
  int64 *troubled; /* its failing and redriven rows … */
  bool *taken;     /* … and which of them this claim takes */
  int n_troubled;
} ClaimKey;

/* Where a pass has come to with the rows of one name of the sink. */
typedef struct Reading {
  Datum name;
  int64 after;           /* rows that are ready, by position */
  TimestampTz due_after; /* rows whose time has come, by time */
  int64 due_after_position;
  bool no_more, no_more_due;
} Reading;

typedef struct Claim {
  Oid caller;
  const ManualSink *sink;
  int limit;
  int64 lease_us;
  pg_uuid_t token;
  TimestampTz now; /* of the pass */
  Snapshot snapshot;
  HTAB *keys;
  Candidate *batch;
  int n_batch, max_batch;
  int read_more;
  Reading *reading; /* the one whose rows come in */
  Candidate *taken; /* of this pass: locked */
  int n_taken;
  int64 *positions; /* of all passes: leased */
  int n_leased;
  bool look_again; /* somebody else was quicker */
} Claim;
