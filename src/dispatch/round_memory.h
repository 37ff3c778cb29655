/*
 * round_memory.h: the lists of a round (round/claim_round.h). They live as long as the worker, since a round may end
 * at any call of its port without running a destructor, and they keep their room from round to round.
 */
#pragma once

#include <cstddef>
#include <vector>

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

  std::vector<RereadRow> rows;
  std::vector<RereadRow *> by_position;
  std::vector<int64_t> positions;
  std::vector<FoundDeadLetter> dead_letters; /* by position */
  std::vector<QueueEntry> entries;
  std::vector<RowHandle> done; /* entries to be deleted */
  std::vector<MarkToWrite> marks;
  std::vector<InFlightEvent *> events, ready; /* to be recorded */
  std::vector<EndedRow> ended;
  std::vector<RowToWrite> to_write;

  /* Makes room for so many rows that are read again, marks, or events to be recorded. False: out of memory. */
  bool reserve_rows(size_t n) noexcept;
  bool reserve_marks(size_t n) noexcept;
  bool reserve_events(size_t n) noexcept;
};

}  // namespace dispatch
