/*
 * out_of_order.h: when a delivered event is recorded while an earlier one of its key stands as a dead letter, fails,
 * or has been redriven, that one is marked with the position that went before it (overtaken_by): delivered rows leave
 * the table, and a redrive must know. Costs nothing for keys without such rows.
 */
#pragma once

#include "server/inflight/in_flight.h"

/* Can it have overtaken anything? False for almost all. */
bool out_of_order_possible(const InFlightEvent *sent);

/* In the recording transaction, after dead and failed events were written. Events whose recording must wait,
 * because somebody holds the row that is to be marked, get a `record_after` in the future. */
void out_of_order_mark(InFlightEvent **sent, int n, Moment now);
