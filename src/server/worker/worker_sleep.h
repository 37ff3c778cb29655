/* worker_sleep.h: when the worker must run again although nothing wakes it. Main thread, outside a transaction. */
#pragma once

#include "server/base/clock.h"

/* Has a sink more events than it has room for? */
bool any_sink_starved(void);

/* Would a claim find events that a sink has room for, as far as the worker knows? */
bool any_sink_can_claim(TimestampTz now);

/* How long the worker may sleep if its latch is not set, in milliseconds. `polled_at`: the last poll, which
 * outbox.poll_interval asks for. */
long worker_sleep_ms(Now clock, bool claims_wanted, Moment polled_at);
