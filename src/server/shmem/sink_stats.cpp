/* sink_stats.cpp: finds, fills and resets the counters of a sink. They outlive workers, but not a server restart. */
#include "server/shmem/sink_stats.h"

#include "server/shmem/shared_state.h"

#include <math.h>

#include <utility>

extern "C" {
#include "mb/pg_wchar.h"
}

SinkStats *shared_sink_stats(Oid database, Oid server, bool create) {
  SharedState *shared = shared_state();
  SinkStats *found = NULL, *free_slot = NULL;

  if (shared == NULL)
    return NULL;
  Assert(!LWLockHeldByMe(shared->lock));
  LWLockAcquire(shared->lock, LW_EXCLUSIVE);
  for (int i = 0; i < OUTBOX_MAX_SINKS && found == NULL; i++) {
    SinkStats *stats = &shared->sinks[i];
    if (stats->database == database && stats->server == server)
      found = stats;
    else if (stats->database == InvalidOid && free_slot == NULL)
      free_slot = stats;
  }
  if (found == NULL && create && free_slot != NULL) {
    memset((void *)free_slot, 0, sizeof(SinkStats));
    free_slot->database = database;
    free_slot->server = server;
    found = free_slot;
  }
  LWLockRelease(shared->lock);
  return found;
}

void shared_sink_error(SinkStats *stats, const char *error, TimestampTz at) {
  SharedState *shared = shared_state();
  Assert(!LWLockHeldByMe(shared->lock));
  int length = pg_mbcliplen(error, strlen(error), sizeof(stats->last_error) - 1);

  LWLockAcquire(shared->lock, LW_EXCLUSIVE);
  memcpy(stats->last_error, error, length);
  stats->last_error[length] = '\0';
  stats->last_error_at = at;
  LWLockRelease(shared->lock);
}

void shared_sink_unrecorded(SinkStats *stats, int worker, Unrecorded now, bool stuck, const char *error,
                            TimestampTz at) {
  SharedState *shared = shared_state();
  Assert(!LWLockHeldByMe(shared->lock));
  Unrecorded *mine = &stats->unrecorded[worker % OUTBOX_COUNTED_WORKERS];
  uint64 all = 0;

  if (mine->n == now.n && mine->sent == now.sent && (now.n > 0 || stuck || stats->unrecorded_since == 0))
    return;
  LWLockAcquire(shared->lock, LW_EXCLUSIVE);
  *mine = now;
  for (const Unrecorded &each : stats->unrecorded)
    all += each.n;
  if (all == 0 && !stuck)
    stats->unrecorded_since = 0;
  if (now.n > 0) {
    if (stats->unrecorded_since == 0)
      stats->unrecorded_since = at;
    int length = pg_mbcliplen(error, strlen(error), sizeof(stats->record_error) - 1);
    memcpy(stats->record_error, error, length);
    stats->record_error[length] = '\0';
  }
  LWLockRelease(shared->lock);
}

void shared_sink_worker_left(SinkStats *stats, int worker, bool has_successor) {
  const int i = worker % OUTBOX_COUNTED_WORKERS;

  stats->unanswered += std::exchange(stats->in_flight[i], 0); /* another worker sends them again */
  stats->unrecorded[i] = {0, 0};
  stats->low_watermark[i] = stats->paused_until[i] = 0;
  if (!has_successor)
    stats->state[i] = SIGNAL_NONE;
}

const char *shared_sink_state(const SinkStats *stats, uint64 workers) {
  static const char *const names[] = {
      NULL,       "idle",         "delivering",    "degraded", "waiting for a synchronous standby",
      "disabled", "circuit open", "misconfigured", "stopped"};
  uint8 worst = SIGNAL_NONE;

  static_assert(lengthof(names) == SIGNAL_STOPPED + 1);
  for (int i = 0; i < OUTBOX_COUNTED_WORKERS; i++)
    if (workers & (UINT64CONST(1) << i))
      worst = Max(worst, stats->state[i]);
  return names[worst];
}

TimestampTz shared_sink_paused_until(const SinkStats *stats) {
  TimestampTz last = 0;

  for (TimestampTz until : stats->paused_until)
    last = Max(last, until);
  return last > GetCurrentTimestamp() ? last : 0;
}

void shared_sink_rate(SinkStats *stats, uint64 delivered, Moment now) {
  Assert(LWLockHeldByMeInMode(shared_state()->lock, LW_EXCLUSIVE));
  double seconds = (now.us - stats->rate_at.us) / 1000000.0;

  if (seconds <= 0)
    return;
  double weight = stats->rate_at == MOMENT_NONE ? 1 : 1 - exp(-seconds / 10);
  double rate = delivered / Max(seconds, 0.001);
  stats->rate = stats->rate_at == MOMENT_NONE ? 0 : stats->rate + weight * (rate - stats->rate);
  stats->rate_at = now;
}

void shared_sink_reset(Oid database, Oid server) {
  SharedState *shared = shared_state();
  Assert(!LWLockHeldByMe(shared->lock));
  LWLockAcquire(shared->lock, LW_EXCLUSIVE);
  for (int i = 0; i < OUTBOX_MAX_SINKS; i++) {
    SinkStats *stats = &shared->sinks[i];
    if (stats->database != database || (OidIsValid(server) && stats->server != server))
      continue;
    stats->delivered = stats->retried = stats->failed = stats->redriven_late = stats->unanswered = 0;
    stats->last_error[0] = '\0';
    stats->last_error_at = 0;
    stats->rate = 0;
    stats->rate_at = MOMENT_NONE;
    memset(stats->failures, 0, sizeof(stats->failures));
    memset(&stats->latency, 0, sizeof(stats->latency));
    stats->since = GetCurrentTimestamp();
  }
  LWLockRelease(shared->lock);
}

void shared_sink_forget(Oid database, Oid server) {
  SharedState *shared = shared_state();
  Assert(!LWLockHeldByMe(shared->lock));
  LWLockAcquire(shared->lock, LW_EXCLUSIVE);
  for (int i = 0; i < OUTBOX_MAX_SINKS; i++)
    if (shared->sinks[i].database == database && (server == InvalidOid || shared->sinks[i].server == server))
      shared->sinks[i].database = InvalidOid;
  LWLockRelease(shared->lock);
}
