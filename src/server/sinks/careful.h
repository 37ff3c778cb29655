/*
 * careful.h: a worker that is careful (storage/crash_record.h) opens one sink after the other and hands over one
 * event after the other, the sinks in turns, so that few things are at work in a crash. Order is kept: an event that
 * may not be handed over now returns to the table.
 */
#pragma once

#include "server/sinks/worker_sinks.h"
#include "server/storage/crash_record.h"

typedef enum CarefulOpen {
  OPEN_NOW,   /* careful_opened() must follow */
  OPEN_LATER, /* something else is at work */
  OPEN_NEVER  /* it crashes the worker */
} CarefulOpen;

CarefulOpen careful_before_open(const WorkerSink *sink, Moment now);
void careful_opened(bool is_open);

/* How many more events the sink may get, of those that it would take. */
int careful_credit(int credit, Moment now);
/* How many of the sink's batch may be handed over now. careful_handed_over() must follow with the number that the
 * sink took. */
int careful_may_hand_over(WorkerSink *sink, Moment now);
void careful_handed_over(int taken);
/* The event with this ticket has ended. */
void careful_ended(uint64 ticket);

/* When careful_credit() may rise without an event that ends. */
Moment careful_next_moment(Moment now);

/* An event is read from its row, until careful_read(), or until the next round if an error is raised. */
void careful_reads(const WorkerSink *sink, int64 position, const dispatch::RowHandle &row);
void careful_read(void);
/* The guilt of the event: the worse of its reading and its sending. */
Guilt careful_guilt(const WorkerSink *sink, int64 position, const dispatch::RowHandle &row);
