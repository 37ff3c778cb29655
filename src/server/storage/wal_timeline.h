/* wal_timeline.h: each promotion begins a new timeline, with a higher number, so of two servers that both believe to
 * be the primary the one with the higher timeline is. */
#pragma once

#include "server/base/server.h"

extern "C" {
#include "access/xlogdefs.h"
}

/* The timeline that this server writes; on a standby, the one that it replays. */
TimeLineID wal_timeline(void);
