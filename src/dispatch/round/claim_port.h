/*
 * claim_port.h: what a round of claiming needs of the world in which the table is: rows to read, locks and marks. The
 * order in which it asks stands in claim_round.h, once for every world: the worker's port reads with SPI and locks in
 * the heap (server/claim), the simulator's has the table in memory (test/simulate).
 *
 * Each call may end the round: in the server by longjmp, in the simulator by an exception. So no object with a
 * destructor lives across a call. ClaimRound::give_back() then takes back what the round has claimed, and how far it
 * has read.
 */
#pragma once

#include <span>
#include <string_view>

#include "dispatch/classify_row.h"
#include "dispatch/fault_point.h"
#include "dispatch/round/function_ref.h"
#include "dispatch/round_sink.h"

namespace dispatch {

/* The rows that a read finds, and their order. All but the last three read pending rows. */
enum class RowsOf : uint8_t {
  MAIN,      /* above `after`, by position */
  LATE,      /* of the transaction `xid`, above `after` and up to `upto`, by position */
  MARKED,    /* with the mark `group`, above `after`, by position */
  DUE,       /* unmarked rows of `sink` that have a time, after (`after_time`, `after`), by time and position */
  WAITING,   /* the same, with the error of the last try */
  POSITIONS, /* at `positions`, by position */
  TROUBLED, /* rows of `sink` whose last delivery has failed, and redriven ones, after (`after_hash`, `after`), by the
               hash of their key as a signed number, and position. None without a key. */
  TROUBLED_OF_KEY,        /* those of `sink` and `key_hash`, by position */
  GROUPS,                 /* of each mark the first row */
  FIRST_OF_SINK,          /* the first row of `sink` without a time */
  FIRST_UNROUTED,         /* the first row that is not routed */
  FIRST_MARKED_WITH_TIME, /* the first row that has a mark and a time */
  LAST,                   /* the last row */
  REDRIVEN_OF_KEY,        /* redriven rows of `sink` and `key_hash` that have no mark and no time, by position */
  DEAD,                   /* dead letters above `after`, by position */
  DEAD_OF_KEY,            /* those of `sink` and `key_hash`, by position */
  DEAD_POSITIONS          /* those at `positions` */
};

struct Read {
  RowsOf rows;
  RoundSink *sink = nullptr;
  uint64_t xid = 0, key_hash = 0;
  int64_t group = 0;
  WallTime after_time = WALL_TIME_BEGIN;
  int64_t after = 0, upto = 0, after_hash = 0;
  int limit = 0;
  std::span<const int64_t> positions = {};
};

/* A row that was read, while it is visited. */
struct ReadRow {
  Row facts;
  RoundSink *sink;        /* NULL: it is not yet routed, or the worker has no such sink */
  bool routed;            /* it names a sink */
  bool our_origin;        /* this cluster and database enqueued it */
  WallTime tried_at;      /* WALL_TIME_NEVER: its last delivery did not fail */
  std::string_view error; /* WAITING */
  const void *of_port;    /* for the port */
};

enum class RowLocked : uint8_t {
  LOCKED,
  BUSY, /* another transaction has locked the row, or changed it since it was read */
  GONE  /* no pending row has this position any more */
};

/* Visits a row that was read. False: the read ends. */
using RowVisitor = FunctionRef<bool, const ReadRow &>;

class ClaimPort {
public:
  /* A place at which tests let the round fail (OUTBOX_ROUND_POINT), by its name. A release does not call it. */
  virtual void at(const char *place) = 0;

  /* How much more the worker may hold in flight; the round takes no more bytes than `free_bytes`. */
  virtual int free_events() = 0;
  virtual int64_t free_bytes() = 0;

  /* All reads that follow use one new snapshot. Reads before it see what is committed when they begin. */
  virtual void take_snapshot() = 0;
  /* Ends the round if a sink was altered before that snapshot and is not yet altered here: it may take unrouted
   * events that its cursor has passed, and events that were enqueued since would come before them. */
  virtual void check_sinks() = 0;
  /* Of that snapshot; valid until the next call. */
  virtual TransactionSnapshot transactions() = 0;
  virtual uint64_t oldest_running() = 0;

  virtual void read(const Read &read, RowVisitor visit) = 0;
  /* Of each of these transactions that has pending rows up to `upto`: its first row. */
  virtual void find_late(std::span<const uint64_t> transactions, int64_t upto,
                         FunctionRef<void, uint64_t, int64_t> visit) = 0;
  /* Reads entries of the rescan queue behind `after`, in order, and returns how many. */
  virtual int read_queue(RescanPlace after, std::span<QueueEntry> entries) = 0;
  virtual void delete_from_queue(std::span<const RowHandle> entries) = 0;
  /* Is there an entry in the queue behind `rescanned`, a pending row above `cursor`, or one at or below it of these
   * transactions? */
  virtual bool any_news(RescanPlace rescanned, int64_t cursor, std::span<const uint64_t> ended) = 0;

  /* A row without a sink, which some sinks take by now: it is to be routed, and they wait_for_routing(). */
  virtual bool is_to_be_routed(const ReadRow &row) = 0;
  /* The row at this position, or 0, is to be routed and cannot be now. */
  virtual bool routing_is_stuck(int64_t position) = 0;

  /* The row was chosen: its event is made and added to its sink's batch, which was empty when the round began. NULL
   * with `*reason`, a string literal: it cannot be made, and the port has made sure that the row is read again. */
  virtual InFlightEvent *claim(const ReadRow &row, const char **reason) = 0;
  /* Takes the events that were dropped out of the sink's batch. */
  virtual void close_ranks(RoundSink &sink) = 0;
  /* Locks the rows of the marks, and visits each. Looks at the rows of all batches, and visits at least those that
   * were changed or locked since they were read, by their places in the batches. Nothing waits for a lock. */
  virtual void lock(std::span<const Mark> marks, FunctionRef<void, InFlightEvent **, RowLocked> visit_event,
                    FunctionRef<void, const Mark &, RowLocked, const RowHandle &> visit_mark) = 0;
  virtual void write_marks(std::span<const MarkToWrite> marks) = 0;

  /* For logs and statistics. `reason`: a string literal or NULL. */
  virtual void row_decided(const ReadRow &row, const RowDecision &decision) = 0;
  virtual void event_returned(const InFlightEvent &event, const char *reason) = 0;
  virtual void returned_event_blocked(const Mark &mark, int64_t blocker) = 0;

protected:
  ~ClaimPort() = default;
};

}  // namespace dispatch
