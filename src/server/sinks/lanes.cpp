#include "server/sinks/lanes.h"

#include "server/process/worker_slot.h"
#include "server/sinks/dispatcher.h"
#include "server/sinks/sink_place.h"
#include "server/sinks/worker_sinks.h"

extern "C" {
#include "access/xact.h"
#include "miscadmin.h"
}

/* Taking a lane lets its sinks begin at the beginning: what frees itself within this time is taken together. */
static const int GATHER_MS = 100;

static int my_index = 0;
static int workers = 0;
static LaneSet mine;
static Moment follow_at = MOMENT_NONE;
static bool superfluous = false;

void lanes_init(int index) {
  my_index = index;
}

bool lane_is_mine(const WorkerSink *sink, int lane) {
  return lane_set_has(sink ? &sink->lanes.claimable : &mine, lane);
}

/* Forgets what is blocked in lanes of which this worker knows nothing any more. */
static void forget_unknown_keys(void) {
  int n;
  WorkerSink **sinks = worker_sinks_all(&n);

  for (int i = 0; i < n; i++) {
    const SinkLanes *lanes = &sinks[i]->lanes;
    LaneSet known = lane_set_union(lanes->landing, lane_set_without(lanes->claimable, lanes->fresh));
    if (worker_sink_of(sinks[i]->oid) == sinks[i]) /* else it was renamed, and stands there under two names */
      dispatcher().blocked_keys.forget_unknown(sinks[i]->oid, known.words);
  }
}

/* Lanes of which somebody, maybe we, still has events of this sink in the air although they were given away. */
static LaneSet landing_lanes(const WorkerSink *sink) {
  SharedState *shared = shared_state();
  LaneSet lanes = {};

  for (int i = 0; i < OUTBOX_MAX_WORKERS; i++) {
    const WorkerSlot *slot = &shared->workers[i];
    if (slot->pid == 0 || slot->database != MyDatabaseId)
      continue;
    lanes = lane_set_union(lanes, slot->landing_others);
    for (int j = 0; j < slot->n_landing; j++)
      if (slot->landing[j].server == sink->oid || strcmp(slot->landing[j].name, sink->name) == 0)
        lanes = lane_set_union(lanes, slot->landing[j].lanes);
  }
  return lanes;
}

void lanes_add_sink(WorkerSink *sink) {
  LWLockAcquire(shared_state()->lock, LW_SHARED);
  sink->lanes.claimable = sink->lanes.fresh = lane_set_without(mine, landing_lanes(sink));
  LWLockRelease(shared_state()->lock);
}

/* Takes note of what has landed. */
static bool note_landed(void) {
  bool landed = false;
  int n;
  WorkerSink **sinks = worker_sinks_all(&n);

  for (int i = 0; i < n; i++) {
    SinkLanes *lanes = &sinks[i]->lanes;
    if (lane_set_empty(&lanes->landing))
      continue;
    for (int lane = 0; lane < OUTBOX_LANES; lane++)
      if (lane_set_has(&lanes->landing, lane) && sinks[i]->events.of_shard[lane] == 0) {
        lane_set_remove(&lanes->landing, lane);
        landed = true;
      }
  }
  return landed;
}

static void give_away(int lane) {
  int n;
  WorkerSink **sinks = worker_sinks_all(&n);

  lane_set_remove(&mine, lane);
  for (int i = 0; i < n; i++)
    if (sinks[i]->events.of_shard[lane] > 0)
      lane_set_add(&sinks[i]->lanes.landing, lane);
}

/* Gives away the lanes whose new owner is there, takes those that nobody has. True when some were given. */
static bool exchange_lanes(void) {
  SharedState *shared = shared_state();
  DatabaseSlot *database = shared_database(MyDatabaseId, false);
  int n_workers = database ? database->workers : 0;
  LaneSet taken = {};
  uint64 present = 0;
  bool given = false;

  if (n_workers == 0) /* the launcher has not yet said */
    return false;
  workers = n_workers;
  superfluous = my_index >= n_workers;
  for (int i = 0; i < OUTBOX_MAX_WORKERS; i++) {
    const WorkerSlot *slot = &shared->workers[i];
    if (slot->pid == 0 || slot->database != MyDatabaseId)
      continue;
    present |= UINT64CONST(1) << slot->index;
    taken = lane_set_union(taken, slot->lanes);
  }
  for (int lane = 0; lane < OUTBOX_LANES; lane++) {
    int owner = lane % n_workers;
    if (lane_set_has(&mine, lane)) {
      if (owner != my_index && (present >> owner) & 1) {
        give_away(lane);
        given = true;
      }
    } else if (owner == my_index && !lane_set_has(&taken, lane)) {
      lane_set_add(&mine, lane);
    }
  }
  return given;
}

static void publish(WorkerSlot *slot) {
  int n;
  WorkerSink **sinks = worker_sinks_all(&n);

  slot->lanes = mine;
  slot->n_landing = 0;
  slot->landing_others = {};
  for (int i = 0; i < n; i++) {
    if (lane_set_empty(&sinks[i]->lanes.landing))
      continue;
    if (slot->n_landing == OUTBOX_MAX_LANDING) { /* no room to say it of each: all sinks wait for these lanes */
      slot->landing_others = lane_set_union(slot->landing_others, sinks[i]->lanes.landing);
      continue;
    }
    Landing *landing = &slot->landing[slot->n_landing++];
    landing->server = sinks[i]->oid;
    strlcpy(landing->name, sinks[i]->name, sizeof(landing->name));
    landing->lanes = sinks[i]->lanes.landing;
  }
}

/* What each sink may claim now. True when one of them has gained a lane: it begins at the beginning. */
static bool update_sinks(void) {
  bool gained = false;
  int n;
  WorkerSink **sinks = worker_sinks_all(&n);

  for (int i = 0; i < n; i++) {
    SinkLanes *lanes = &sinks[i]->lanes;
    LaneSet before = lanes->claimable;
    lanes->claimable = lane_set_without(mine, landing_lanes(sinks[i]));
    LaneSet more = lane_set_without(lanes->claimable, before);
    LaneSet stale = lane_set_without(lanes->fresh, lanes->claimable);
    lanes->fresh = lane_set_without(lane_set_union(lanes->fresh, more), stale);
    if (lane_set_empty(&more))
      continue;
    worker_sink_restart(sinks[i]);
    gained = true;
  }
  return gained;
}

bool lanes_follow(Moment now) {
  Assert(!IsTransactionState());
  WorkerSlot *slot = worker_slot();
  SharedState *shared = shared_state();
  bool landed = note_landed();
  bool look = now >= follow_at && pg_atomic_exchange_u32(&slot->lanes_changed, 0) == 1;
  bool given = false, gained = false;

  if (!landed && !look)
    return false;
  LWLockAcquire(shared->lock, LW_EXCLUSIVE);
  if (look)
    given = exchange_lanes();
  publish(slot);
  if (look)
    gained = update_sinks();
  if (landed || given)
    shared_lanes_changed(MyDatabaseId);
  LWLockRelease(shared->lock);
  if (landed || given)
    forget_unknown_keys();
  if (gained)
    follow_at = moment_after(now, GATHER_MS);
  return gained;
}

bool lanes_any_fresh(void) {
  int n;
  WorkerSink **sinks = worker_sinks_all(&n);

  for (int i = 0; i < n; i++)
    if (!lane_set_empty(&sinks[i]->lanes.fresh))
      return true;
  return false;
}

void lanes_read(void) {
  int n;
  WorkerSink **sinks = worker_sinks_all(&n);

  for (int i = 0; i < n; i++)
    sinks[i]->lanes.fresh = {};
}

int lanes_workers(void) {
  return workers;
}

Moment lanes_next_moment(void) {
  return pg_atomic_read_u32(&worker_slot()->lanes_changed) == 1 ? follow_at : MOMENT_NEVER;
}

bool lanes_landing(void) {
  const WorkerSlot *slot = worker_slot();

  return slot->n_landing > 0;
}

bool lanes_superfluous(void) {
  return superfluous && lane_set_empty(&mine);
}
