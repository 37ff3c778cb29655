/*
 * round_memory.h: the lists of a round (round/claim_round.h). They live as long as the worker, since a round may end
 * at any call of its port without running a destructor, and they keep their room from round to round.
 */
#pragma once

#include <cstddef>

#include "dispatch/memory.h"
#include "dispatch/recording.h"
#include "dispatch/rescan_cursor.h"
#include "dispatch/types.h"

namespace dispatch {

/* A row's entry in the rescan queue. */
struct QueueEntry {
  RescanPlace place;
  RowHandle handle;
};

/* A row that is read again by its position, and what became of it. */
struct RereadRow {
  int64_t position;
  enum Fate : uint8_t {
    GONE,   /* no pending row has the position; so it begins */
    KEPT,   /* there was no room for the row */
    OTHERS, /* the row belongs to another worker */
    DONE    /* the row was classified */
  } fate;
  SinkId sink; /* of a row that is kept, as it is now */
  uint64_t key_hash;
};

enum class DeadLetter : uint8_t {
  NOT_DEAD,
  DEAD,     /* its key is not blocked */
  BLOCKS,   /* it blocks its key */
  ELSEWHERE /* a dead letter in a shard of another worker */
};

/* A mark of a row that was locked. */
struct MarkToWrite {
  RowHandle handle;
  int64_t group; /* 0 = none */
};

/* The row of an ended event, and what becomes of it. */
struct EndedRow {
  InFlightEvent *event;
  RowHandle handle; /* where it is locked */
  FoundRow found;
  Disposition disposition;
};
struct RowToWrite {
  InFlightEvent *event;
  RowHandle handle;
  WallTime next_attempt; /* RETRY */
  int64_t group;         /* RETRY: the mark with which it waits behind an earlier event of its key; 0 = none */
};

struct FoundDeadLetter {
  int64_t position;
  DeadLetter state;
};

struct RoundMemory {
  static constexpr size_t QUEUE_ENTRIES = 1000;
  static constexpr size_t DRAINING_KEYS = 64;

  Vector<RereadRow> rows;
  Vector<RereadRow *> by_position;
  Vector<int64_t> positions;
  Vector<FoundDeadLetter> dead_letters; /* by position */
  Vector<QueueEntry> entries;
  Vector<RowHandle> done; /* entries to be deleted */
  Vector<MarkToWrite> marks;
  Vector<InFlightEvent *> events, ready; /* to be recorded */
  Vector<EndedRow> ended;
  Vector<RowToWrite> to_write;
};

}  // namespace dispatch
