/*
 * loop_port.h: what the loop of a worker needs of its world, beside the table (claim_port.h, record_port.h): what
 * wakes it, its transactions, its sinks, and the standbys that must confirm them. The order in which it asks stands
 * in loop.h, once for every world. Only run() and what it calls may raise an error, and end the loop that way.
 */
#pragma once

#include "dispatch/round/claim_round.h"

namespace dispatch {

/* A transaction of the loop does these two, or one of them. */
enum class Task : uint8_t { RECORD, CLAIM };

/* A sink, before the worker exits because it is idle. */
enum class SinkCondition : uint8_t {
  STOPPED, /* it delivers nothing until a user resumes it */
  HEALTHY,
  TROUBLED /* the next worker would not know its failures */
};

class LoopPort {
public:
  /* Places at which tests let the worker fail or end (fault_point.h), by their names: in a transaction, between two,
   * and where no error can be raised. A release calls none of them. */
  virtual void at(const char *place) = 0;
  virtual void between(const char *place) = 0;
  virtual void signal(const char *place) = 0;

  /* ---- what wakes the worker ---- */
  virtual int64_t poll_ms() = 0;
  /* From now on each commit with events wakes the worker. True: one has come since it was woken last. */
  virtual bool ask_to_be_woken() = 0;
  /* It wakes by itself, and commits need not wake it. */
  virtual void wakes_by_itself() = 0;
  /* Was a rescan asked for since the last call? */
  virtual bool rescan_requested() = 0;

  /* ---- transactions ---- */
  /* Runs `transaction`, which calls begin(), commit() and those between them. `claims`: it does, and its memory lives
   * until the next that claims. After an error all of it was rolled back, and `task` is the part that failed. */
  virtual Fault run(Now now, bool claims, const Task &task, FunctionRef<void> transaction) = 0;
  /* Learns of altered sinks (Loop::want_rescan()). */
  virtual void begin(Task first) = 0;
  virtual void commit() = 0;
  virtual void record(Now now) = 0;        /* RecordRound::run() */
  virtual bool recorded(Now now) = 0;      /* after the commit: RecordRound::committed() */
  virtual bool has_news() = 0;             /* ClaimRound::has_news() */
  virtual bool claim(Now now, bool *) = 0; /* ClaimRound::run() */
  /* After the commit: makes safe what the claimed events depend on. */
  virtual void flush() = 0;
  /* RecordRound::rolled_back(). `of_recording`: the recording failed, and not what was done beside it; `of_rows`: the
   * rows that it recorded may be the reason. True when others should be tried at once. */
  virtual bool recording_rolled_back(Now now, bool of_recording, bool of_rows) = 0;
  /* All that the transaction changed here was taken back. `failed`: the part of it that failed. */
  virtual void rolled_back(Fault fault, Task failed) = 0;
  /* For calls outside of a transaction. */
  virtual ClaimRound claim_round() = 0;

  /* After an error, its task is not tried before this moment; a success ends the pause. */
  virtual Moment pause_end(Task task) = 0;
  virtual void succeeded(Task task) = 0;
  /* A task has failed, and not succeeded since: the two run in transactions of their own. */
  virtual bool has_errors() = 0;

  /* ---- sinks ---- */
  /* Calls Loop::take() for each event that has ended. */
  virtual void collect(Now now) = 0;
  /* Closes and opens sinks, and sets their credit (Dispatch::give_places()). */
  virtual void refresh_sinks(Now now) = 0;
  virtual bool is_circuit_open(const RoundSink &sink) = 0;
  /* It is open, and does not wait until its destination can take something. */
  virtual bool is_ready(const RoundSink &sink) = 0;
  virtual SinkCondition condition_of(const RoundSink &sink) = 0;
  /* Hands the events of the batch over, and returns how many of them were taken, the first ones. `with_gaps`: some
   * were returned, and are NULL (ClaimPort::close_ranks()). */
  virtual int submit(RoundSink &sink, bool with_gaps) = 0;
  virtual Moment moment() = 0;
  /* The worker holds as many events as it may. */
  virtual bool is_full() = 0;

  /* ---- synchronous standbys ---- */
  /* The end of the WAL that must be safe before the claimed events are submitted. */
  virtual uint64_t lsn_to_confirm() = 0;
  /* The standbys have confirmed it, or need not. */
  virtual bool is_confirmed(uint64_t lsn) = 0;
  /* For the log: events wait for long, or no longer. */
  virtual void standbys_missing(uint64_t lsn) = 0;
  virtual void standbys_are_back() = 0;

  /* ---- sleep and exit ---- */
  /* The earliest moment for: a sink, the handing over of shards, another task of the worker, the log. */
  virtual Moment next_of_sinks(Now now) = 0;
  virtual Moment next_of_shards() = 0;
  virtual Moment next_task() = 0;
  virtual Moment next_log_line() = 0;
  virtual int64_t idle_timeout_ms() = 0;
  virtual bool slots_are_scarce() = 0;
  /* It has work that the loop does not know of. */
  virtual bool is_busy() = 0;
  /* The worker was found busy: it does not exit with the others of its database. */
  virtual void stays() = 0;
  /* The others of its database agree that all exit until then, or until an event is due. */
  virtual bool exits(Moment until, WallTime due) = 0;

protected:
  ~LoopPort() = default;
};

}  // namespace dispatch
