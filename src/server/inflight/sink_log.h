/*
 * sink_log.h: what the server's log says of sinks and of their events. An outage is a few lines, however many events
 * fail and however often something is tried again: what repeats itself is counted, and told ever more seldom.
 */
#pragma once

#include "server/base/clock.h"
#include "server/inflight/in_flight.h"

#include "delivery/delivery.h"

extern "C" {
#include "executor/tuptable.h"
}

/* A line of the delivery library's. */
void sink_log_line(const ob_log_line *line, Moment now);

/* While a failure is recorded: the row tells the event's id. */
void sink_log_see_failing(const InFlightEvent *event, TupleTableSlot *row, TupleDesc desc);
/* Once that is committed. */
void sink_log_count_failed(const InFlightEvent *event);

/* Between transactions: tells what is due; with `all`, before the end, everything. */
void sink_log_flush(Moment now, bool all);
/* When that should be done next. */
Moment sink_log_next_moment(void);
