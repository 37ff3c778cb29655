/*
 * decision_log.h: what a worker decides, in the server's log: a line for each round at debug1, and one for each event
 * at debug2. It names positions and sinks, and no payload, header, key or error: those may be secret.
 */
#pragma once

#include "server/base/server.h"

typedef enum Decision {
  EVENT_CLAIMED,
  EVENT_PASSED,   /* not now, or not by this worker */
  EVENT_BLOCKED,  /* marked to wait behind another event of its key */
  EVENT_STOPPED,  /* there is no room for it: the scan ends before it */
  EVENT_RETURNED, /* claimed before; it comes back unsent */
  EVENT_DELIVERED,
  EVENT_FAILED, /* it is tried again */
  EVENT_DEAD,
  EVENT_GONE, /* a user had deleted or moved its row */
  DECISIONS
} Decision;

typedef struct DecisionLog {
  int n[DECISIONS]; /* since the last line for a round */
  bool each;        /* debug2 is on */
} DecisionLog;

extern DecisionLog decisions;

/* A round begins: the level may have changed. */
void decision_log_begin(void);

void decision_log_tell(Decision decision, int64 position, const char *sink, const char *reason, int64 other);

/* `sink` and `reason` may be NULL. `other`: the position of the event that is the reason, or 0. The line is not put
 * together unless somebody wants it. */
static inline void decision_log(Decision decision, int64 position, const char *sink, const char *reason,
                                int64 other) {
  decisions.n[decision]++;
  if (unlikely(decisions.each))
    decision_log_tell(decision, position, sink, reason, other);
}

/* At the end of a round: what was decided since the last one. Nothing is told when nothing was, and `waits_for` is
 * the same as then. */
void decision_log_round(int in_flight, long ms, const char *waits_for);
