/*
 * submit.h: hands claimed events to their sinks, after the commit and once their transactions are safe. Where a
 * synchronous standby has to confirm them first they are held in hand for a moment, and nothing more is claimed; if
 * it takes longer they are given back, because a user may change or delete them meanwhile, and claimed again when
 * the standby has caught up. The worker never blocks for it: it looks now and then.
 */
#pragma once

#include "server/base/clock.h"

/* What the round has claimed, after durable_flush(): hands it over, or holds it. Returns how many events. */
int submit_claimed(void);

/* Once per loop, after the completions were collected. True when a wait is over: claim again. */
bool submit_check_standbys(Moment now);

/* Is a standby waited for? Nothing is claimed then. */
bool submit_waits(void);
/* … in vain, so far: nothing is held in hand any more. */
bool submit_is_stalled(void);
/* With submit_waits(): how long to sleep before the next look. */
long submit_pause_ms(Moment now);

/* Gives back what is held in hand. */
void submit_return_held(void);
