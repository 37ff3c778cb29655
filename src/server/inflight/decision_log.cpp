/*
 * decision_log.cpp: the lines of decision_log.h. Decisions are counted at every log level, since an addition costs
 * less than reading the level, which is read once per round.
 */
#include "server/inflight/decision_log.h"

DecisionLog decisions;

static const char *const names[DECISIONS] = {"claimed",   "passed", "blocked", "stopped", "returned",
                                             "delivered", "failed", "dead",    "gone"};

void decision_log_begin(void) {
  decisions.each = message_level_is_interesting(DEBUG2);
}

void decision_log_event(Decision decision, int64 position, const char *sink, const char *reason, int64 other) {
  char by[48] = "";

  if (other != 0)
    snprintf(by, sizeof(by), " by event " INT64_FORMAT, other);
  ereport(DEBUG2, (errmsg_internal("outbox event " INT64_FORMAT " of sink %s%s%s: %s%s%s%s", position,
                                   sink ? "\"" : "", sink ? sink : "(none)", sink ? "\"" : "", names[decision], by,
                                   reason ? ": " : "", reason ? reason : ""),
                   errhidestmt(true), errhidecontext(true)));
}

void decision_log_shard(int64 position, const char *sink, int shard) {
  if (unlikely(decisions.each))
    ereport(DEBUG2,
            (errmsg_internal("outbox event " INT64_FORMAT " of sink \"%s\" is of shard %d", position, sink, shard),
             errhidestmt(true), errhidecontext(true)));
}

static void log_round(int in_flight, long ms, const char *waits_for) {
  const int *n = decisions.n;
  const int recorded = n[EVENT_DELIVERED] + n[EVENT_FAILED] + n[EVENT_DEAD] + n[EVENT_GONE];

  ereport(DEBUG1, (errmsg_internal("outbox round: claimed %d, passed %d, blocked %d, stopped %d, returned %d; "
                                   "recorded %d (delivered %d, failed %d, dead %d, gone %d); in flight %d; waits up "
                                   "to %ld ms for %s",
                                   n[EVENT_CLAIMED], n[EVENT_PASSED], n[EVENT_BLOCKED], n[EVENT_STOPPED],
                                   n[EVENT_RETURNED], recorded, n[EVENT_DELIVERED], n[EVENT_FAILED], n[EVENT_DEAD],
                                   n[EVENT_GONE], in_flight, ms, waits_for),
                   errhidestmt(true), errhidecontext(true)));
}

void decision_log_round(int in_flight, long ms, const char *waits_for) {
  static const char *last_waits_for = NULL; /* a string literal */
  bool any = false;

  for (int i = 0; i < DECISIONS; i++)
    any = any || decisions.n[i] > 0;
  if ((any || waits_for != last_waits_for) && message_level_is_interesting(DEBUG1))
    log_round(in_flight, ms, waits_for);
  last_waits_for = waits_for;
  memset(decisions.n, 0, sizeof(decisions.n));
}
