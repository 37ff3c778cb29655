/*
 * gather.h: how long events are gathered for one claim. When few come each is claimed at once; under load those of
 * several commits together, and no commit need wake the worker meanwhile.
 */
#pragma once

#include "server/base/clock.h"

/* After a round that `began` then and claimed so many events. `more`: others could be claimed at once. */
void gather_claimed(Moment began, int events, bool more);

/* Until then nothing need be claimed. */
Moment gather_end(void);
