/*
 * submit.h: hands claimed events to their sinks, after the commit and once their transactions are safe. Where a
 * synchronous standby must confirm them first, the worker holds them and claims no more events. If the standby takes
 * longer than 1 s, the events are returned to the table, because a user may change or delete them meanwhile, and are
 * claimed again when the standby has confirmed. The worker does not block: it checks at intervals of 1 to 50 ms.
 */
#pragma once

#include "server/base/clock.h"

/* Hands the events that the round has claimed to their sinks, or holds them. Returns their number. After
 * durable_flush(), outside a transaction. */
int submit_claimed(void);

/* Once per loop, after completions_collect(): hands held events over if the standbys have confirmed. Returns true
 * when the wait is over, so that events are claimed again. Outside a transaction. */
bool submit_check_standbys(Moment now);

/* Does the worker wait for a standby? Then it claims no events. */
bool submit_waits(void);
/* Does the worker wait for a standby, and has returned the held events? */
bool submit_is_stalled(void);
/* While submit_waits(): how long to sleep before the next check, in milliseconds. */
long submit_pause_ms(Moment now);

/* Returns the held events. */
void submit_return_held(void);
