/* worker_sleep.h: when the worker must run again although nothing wakes it. Main thread, outside a transaction. */
#pragma once

#include "server/base/clock.h"

/* How long the worker may sleep if its latch is not set, in milliseconds. `polled_at`: the last poll, which
 * outbox.poll_interval asks for. */
long worker_sleep_ms(Now clock, bool claims_wanted, Moment polled_at);
