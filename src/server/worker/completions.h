/* completions.h: takes the outcomes of events from the delivery library. */
#pragma once

#include "server/base/clock.h"
#include "server/inflight/events_in_flight.h"

#include "delivery/delivery.h"

/* Once, before the other functions. */
void completions_init(ob_engines *engine);

/* Takes all outcomes, and writes the delivery library's log lines. Outside a transaction. */
void completions_collect(Now now);
