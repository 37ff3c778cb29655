/*
 * unrouted_events.h: events that no sink took wait, unrouted. Those that a sink takes now, and that somebody had
 * locked when they were to be routed, are noted by position, so that nothing else has to be looked at again until
 * they are free.
 */
#pragma once

#include "server/base/server.h"

/* How many the last outbox.route_waiting() of this process has noted; a full page of them stands for more. */
int unrouted_locked(void);

bool unrouted_is_locked(int64 position);

/* In a transaction, in SPI: routes those that are free by now. True when more than were noted may wait. */
bool unrouted_route_locked(void);
