/*
 * shard_handoff.cpp: a worker changes and publishes its shards and its draining shards under one lock, so that two
 * workers cannot take the same shard.
 */
#include "server/sinks/shard_handoff.h"

#include "server/base/fault_point.h"
#include "server/base/settings.h"
#include "server/process/worker_slot.h"
#include "server/sinks/dispatcher.h"
#include "server/sinks/worker_sinks.h"

extern "C" {
#include "access/xact.h"
#include "miscadmin.h"
}

using dispatch::ShardSet;

static const int SHARD_SET_TEXT = dispatch::SHARDS / 4 + 1;

/* Forgets blocked keys in shards that this worker neither owns nor drains. To free the memory of a million takes more
 * than a second, so each loop frees some. */
static void forget_unknown_keys(void) {
  for (const WorkerSink *sink : worker_sinks_all())
    dispatcher().blocked_keys.forget_unknown(sink->id(), sink->shards.known());
}

/* Shards that a worker (or this one) has given away while it has events of this sink in flight. The lock must be
 * held. */
static ShardSet draining_anywhere(const WorkerSink *sink) {
  Assert(LWLockHeldByMe(shared_state()->lock));
  SharedState *shared = shared_state();
  ShardSet shards = {};

  for (int i = 0; i < OUTBOX_MAX_WORKERS; i++) {
    const WorkerSlot *slot = &shared->workers[i];
    if (slot->pid == 0 || slot->database != MyDatabaseId)
      continue;
    shards = shards | slot->draining_others;
    for (int j = 0; j < slot->n_draining; j++)
      if (slot->draining[j].server == sink->id() || strcmp(slot->draining[j].name, sink->name) == 0)
        shards = shards | slot->draining[j].shards;
  }
  return shards;
}

typedef char ShardSetText[SHARD_SET_TEXT];

static const char *set_text(const ShardSet &set, ShardSetText text) {
  char *end = text;

  for (uint64 word : set.words)
    end += snprintf(end, text + sizeof(ShardSetText) - end, "%016llx", (unsigned long long)word);
  return text;
}

static void log_sink(const WorkerSink *sink, const char *which) {
  ShardSetText mine, claimed, draining;
  ShardSet may_claim = {};

  for (int shard = 0; shard < dispatch::SHARDS; shard++)
    if (sink->shards.may_claim(shard))
      may_claim.add(shard);
  ereport(DEBUG2, (errmsg_internal("outbox shards of %s \"%s\": owns %s, claims %s, drains %s", which, sink->name,
                                   set_text(dispatcher().shards.mine(), mine), set_text(may_claim, claimed),
                                   set_text(sink->shards.draining(), draining)),
                   errhidestmt(true), errhidecontext(true)));
}

/* At debug2 the shards of each sink, written under the lock, so that the lines of all workers stand in the order of
 * the steps (test/protocols/trace.py). */
static void log_shards(void) {
  Assert(LWLockHeldByMe(shared_state()->lock));
  if (!message_level_is_interesting(DEBUG2))
    return;
  for (const WorkerSink *sink : worker_sinks_all())
    log_sink(sink, "sink");
}

void shards_add_sink(WorkerSink *sink) {
  LWLockAcquire(shared_state()->lock, LW_SHARED);
  sink->shards.begin(dispatcher().shards.mine(), draining_anywhere(sink));
  if (message_level_is_interesting(DEBUG2))
    log_sink(sink, "new sink");
  LWLockRelease(shared_state()->lock);
}

static bool note_drained(void) {
  bool drained = false;

  for (WorkerSink *sink : worker_sinks_all())
    drained |= sink->shards.note_drained(sink->events.of_shard);
  return drained;
}

/* A worker that runs clears its flag within moments. One that is frozen in just that moment is found by its last
 * round, which is never older than outbox.poll_interval. */
static bool stands_still(WorkerSlot *slot, Moment now) {
  constexpr int64 LONG_MS = 60 * 1000;
  const bool is_asked = pg_atomic_read_u32(&slot->shards_changed) == 1;

  return moment_is_past(slot->last_loop, now, LONG_MS + (is_asked ? 0 : setting_poll_interval));
}

/* Gives away shards whose new owner runs, and takes shards without an owner. Returns true when it gave some away. The
 * lock must be held. */
static bool exchange_shards(Moment now) {
  Assert(LWLockHeldByMe(shared_state()->lock));
  SharedState *shared = shared_state();
  const DatabaseSlot *database = shared_database(MyDatabaseId, false);
  dispatch::PresentWorker present[OUTBOX_MAX_WORKERS];
  int n_present = 0;

  for (int i = 0; i < OUTBOX_MAX_WORKERS; i++) {
    WorkerSlot *slot = &shared->workers[i];
    if (slot->pid != 0 && slot->database == MyDatabaseId)
      present[n_present++] = {slot->index, slot->shards, stands_still(slot, now)};
  }
  const ShardSet given = dispatcher().shards.exchange(database ? database->workers : 0, present, n_present, now);
  for (WorkerSink *sink : worker_sinks_all())
    sink->shards.give_away(given, sink->events.of_shard);
  return !given.empty();
}

static void publish(WorkerSlot *slot) {
  slot->shards = dispatcher().shards.mine();
  slot->n_draining = 0;
  slot->draining_others = {};
  for (const WorkerSink *sink : worker_sinks_all()) {
    if (!sink->shards.any_draining())
      continue;
    const ShardSet draining = sink->shards.draining();
    if (slot->n_draining == OUTBOX_MAX_DRAINING) { /* no free entry: all sinks wait for these shards */
      slot->draining_others = slot->draining_others | draining;
      continue;
    }
    DrainingShards *entry = &slot->draining[slot->n_draining++];
    entry->server = sink->id();
    strlcpy(entry->name, sink->name, sizeof(entry->name));
    entry->shards = draining;
  }
}

/* Updates the shards of which each sink may claim events. Returns true when a sink has gained a shard; its scan
 * restarts from the beginning. The lock must be held. */
static bool update_sinks(void) {
  bool gained = false;

  for (WorkerSink *sink : worker_sinks_all()) {
    if (!sink->shards.update(dispatcher().shards.mine(), draining_anywhere(sink)))
      continue;
    sink->cursor->restart(GetCurrentTimestamp());
    gained = true;
  }
  return gained;
}

bool shards_follow(Moment now) {
  Assert(!IsTransactionState());
  WorkerSlot *slot = worker_slot();
  SharedState *shared = shared_state();
  if (dispatcher().blocked_keys.is_forgetting())
    dispatcher().blocked_keys.forget_some();
  bool drained = note_drained();
  bool check = now >= dispatcher().shards.exchange_at() && pg_atomic_exchange_u32(&slot->shards_changed, 0) == 1;
  bool given = false, gained = false;

  if (!drained && !check)
    return false;
  LWLockAcquire(shared->lock, LW_EXCLUSIVE);
  if (check)
    given = exchange_shards(now);
  if (dispatcher().shards.keeps_for_another())
    pg_atomic_write_u32(&slot->shards_changed, 1);
  OUTBOX_SIGNAL_POINT("shard.given");
  publish(slot);
  if (check)
    gained = update_sinks();
  log_shards();
  if (drained || given)
    shared_shards_changed(MyDatabaseId);
  LWLockRelease(shared->lock);
  OUTBOX_SIGNAL_POINT("shard.told");
  if (drained || given)
    forget_unknown_keys();
  if (gained)
    dispatcher().shards.gained(now);
  return gained;
}

Moment shards_next_moment(void) {
  if (dispatcher().blocked_keys.is_forgetting())
    return MOMENT_NONE;
  return pg_atomic_read_u32(&worker_slot()->shards_changed) == 1 ? dispatcher().shards.exchange_at() : MOMENT_NEVER;
}

bool shards_draining(void) {
  const WorkerSlot *slot = worker_slot();

  return slot->n_draining > 0;
}
