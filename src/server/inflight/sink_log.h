/*
 * sink_log.h: what the server's log says of sinks and of their events. An outage is a few lines, however many events
 * fail and however often something is tried again: what repeats itself is counted, and told ever more seldom.
 */
#pragma once

#include "server/base/clock.h"

extern "C" {
#include "executor/tuptable.h"
}

struct Flight;

/* A line of the delivery room's. */
void sink_log_line(const ob_log_line *line, Moment now);

/* Events of a sink that failed, or (dead) will not be tried again, with errors of one kind: the first is told when it
 * happens, later ones are counted and told together. */
typedef struct FailureTally {
  bool used;
  uint32 hash; /* of the kind of error */
  int n;       /* not yet told */
  char id[40]; /* of one of them */
  int attempts;
  char error[256];
  TimestampTz since; /* the first of those */
  Moment began_at;   /* likewise */
  Moment seen_at, told_at;
  int pause_ms; /* until the next line, since the last one */
} FailureTally;

/* So many kinds of error of a sink are told apart; what comes beyond them counts with the last. */
enum { FAILURE_KINDS = 4 };

/* While a failure is recorded: the row tells the event's id. */
void sink_log_see_failing(const struct Flight *flight, TupleTableSlot *row, TupleDesc desc);
/* Once that is committed. */
void sink_log_count_failed(const struct Flight *flight);

/* Between transactions: tells what is due; with `all`, before the end, everything. */
void sink_log_flush(Moment now, bool all);
/* When that should be done next. */
Moment sink_log_next_moment(void);
