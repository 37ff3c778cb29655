/* position_step.h: how far apart the positions are that events draw. The sequence in extension/10_events.sql has the
 * same increment. */
#pragma once

#include "server/base/server.h"

#include "dispatch/types.h"

static const int64 POSITION_STEP = dispatch::POSITION_STEP;

/* The last position that belongs to an event which has drawn this one. */
static inline int64 position_last_of(int64 drawn) {
  return drawn + POSITION_STEP - 1;
}
