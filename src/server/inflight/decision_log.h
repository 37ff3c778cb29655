/*
 * decision_log.h: logs the worker's decisions: a line for each round at debug1, and one for each event at debug2. The
 * lines contain positions and sinks, and no payload, header, key or error, since those may be secret.
 */
#pragma once

#include "server/base/server.h"

typedef enum Decision {
  EVENT_CLAIMED,
  EVENT_PASSED,   /* not claimed now, or not by this worker */
  EVENT_BLOCKED,  /* marked to wait behind another event of its key */
  EVENT_STOPPED,  /* no room for the event: the scan stops before it */
  EVENT_RETURNED, /* claimed before, and returned to the table unsent */
  EVENT_DELIVERED,
  EVENT_FAILED, /* a retry follows */
  EVENT_DEAD,
  EVENT_GONE, /* a user has deleted or moved its row */
  DECISIONS
} Decision;

typedef struct DecisionLog {
  int n[DECISIONS]; /* counts since the last round */
  bool each;        /* debug2 is on */
} DecisionLog;

extern DecisionLog decisions;

/* At the start of a round: reads the log level. */
void decision_log_begin(void);

/* Logs one event at debug2. Call decision_log() instead. */
void decision_log_event(Decision decision, int64 position, const char *sink, const char *reason, int64 other);

/* Logs at debug2 that an event was claimed, with its shard: test/protocols/trace.py follows shards from worker to
 * worker. */
void decision_log_shard(int64 position, const char *sink, int shard);

/* Counts a decision, and logs it at debug2. `sink` and `reason` may be NULL. `other` is the position of the event
 * that is the reason, or 0. */
static inline void decision_log(Decision decision, int64 position, const char *sink, const char *reason,
                                int64 other) {
  decisions.n[decision]++;
  if (unlikely(decisions.each))
    decision_log_event(decision, position, sink, reason, other);
}

/* At the end of a round: logs the counts at debug1, unless there was no decision and `waits_for`, a string literal,
 * is the same as in the last round. */
void decision_log_round(int in_flight, long ms, const char *waits_for);
