/*
 * careful.h: a worker that is careful (storage/crash_record.h) opens one sink after the other and hands over one
 * event after the other, the sinks in turns, so that few things are at work in a crash. Order is kept: an event that
 * may not be handed over now returns to the table.
 */
#pragma once

#include "server/sinks/worker_sinks.h"
#include "server/storage/crash_record.h"

typedef enum CarefulOpen {
  OPEN_NOW,   /* Careful::opened() must follow */
  OPEN_LATER, /* something else is at work */
  OPEN_NEVER  /* it crashes the worker */
} CarefulOpen;

/* The work of a careful worker: sinks that it opens, and events that it reads and sends. It stays empty while the
 * worker is not careful. */
class Careful final {
public:
  CarefulOpen before_open(const WorkerSink *sink, Moment now);
  void opened(bool is_open);

  /* How many more events the sink may get, of those that it would take. */
  int credit(int credit, Moment now);
  /* How many of the sink's batch may be handed over now. handed_over() must follow with the number that the sink
   * took. */
  int may_hand_over(WorkerSink *sink, Moment now);
  void handed_over(int taken);
  /* The event with this ticket has ended. */
  void ended(uint64 ticket);

  /* When credit() may rise without an event that ends. */
  Moment next_moment(Moment now) const;

  /* An event is read from its row, until read(), or until the next round if an error is raised. */
  void reads(const WorkerSink *sink, int64 position, const dispatch::RowHandle &row);
  void read();
  /* The guilt of the event: the worse of its reading and its sending. */
  Guilt guilt(const WorkerSink *sink, int64 position, const dispatch::RowHandle &row) const;

private:
  /* A piece of work of other threads. */
  struct AtWork {
    Moment since;
    uint64 ticket; /* of an event */
    bool suspect;
  };

  bool is_used(int i) const;
  void begin(int i, const Work *work, uint64 ticket, bool suspect, Moment now);
  void end(int i, bool survived);
  void end_all();
  void look_at_clock(Moment now);
  int place_for(bool suspect, Moment now);

  AtWork at_work_[OUTBOX_MAX_AT_WORK] = {};
  Work works_[OUTBOX_MAX_AT_WORK] = {}; /* their marks; object InvalidOid: the place is free */
  int beginning_ = -1;                  /* the place of what is being opened or handed over */
  Work reading_ = {};                   /* position 0: nothing */
  int n_used_ = 0;
  /* Until then nothing begins. MOMENT_NEVER: a suspect waits until nothing is at work. MOMENT_NONE: no suspect
   * waits. */
  Moment quiet_until_ = MOMENT_NONE;
  Moment no_event_before_ = MOMENT_NONE; /* a sink that is suspect waits to be opened */
  uint64 turns_ = 0;
};

/* The worker's one object. */
Careful &careful(void);
