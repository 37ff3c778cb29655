/*
 * out_of_order.h: when a delivered event is recorded, marks earlier rows of its key that it has overtaken
 * (dispatch/out_of_order.h).
 */
#pragma once

#include "server/inflight/in_flight.h"

/* In the recording transaction, after dead and failed events were recorded. Events whose recording must wait are put
 * off (record_after). */
void out_of_order_mark(InFlightEvent **sent, int n, Moment now);
