/*
 * sink_log.h: writes lines about sinks and their events to the server's log. Repeated lines are counted and written
 * once a minute, so that an outage is a few lines for any number of failed events.
 */
#pragma once

#include "server/base/clock.h"
#include "server/inflight/events_in_flight.h"

#include "delivery/delivery.h"

extern "C" {
#include "executor/tuptable.h"
}

/* Logs a line of the delivery library. */
void sink_log_line(const ob_log_line *line, Now now);

/* While a failure is recorded, in its transaction: reads the event's id from the row. */
void sink_log_see_failing(const InFlightEvent *event, TupleTableSlot *row, TupleDesc desc);
/* After that transaction has committed: counts the failure. */
void sink_log_count_failed(const InFlightEvent *event);

/* Writes the counted lines that are due; with `all`, before the process exits, all of them. Outside a transaction. */
void sink_log_flush(Moment now, bool all);
/* When the next counted line is due. */
Moment sink_log_next_moment(void);
