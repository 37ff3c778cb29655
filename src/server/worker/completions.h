/* completions.h: takes from the delivery library how events ended. */
#pragma once

#include "server/base/clock.h"
#include "server/inflight/in_flight.h"

#include "delivery/delivery.h"

void completions_init(ob_engine *engine);

/* Takes what has come, and logs what the delivery library has to say. Outside a transaction. */
void completions_collect(Now now);

/* Takes back the failures by which an outage was recognised: they are not their events' fault. */
void discard_suspected_failures(void);
