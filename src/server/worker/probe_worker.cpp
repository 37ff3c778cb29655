/*
 * probe_worker.cpp: the session waits for the worker and holds a snapshot meanwhile, so a probe takes five minutes
 * at most.
 */
#include "server/worker/probe_worker.h"

#include "server/sinks/worker_sinks.h"

extern "C" {
#include "access/xact.h"
#include "storage/ipc.h"
}

/* At once; others wait for their turn within their time. */
enum { MAX_RUNNING = 16 };
/* Of a probe whose turn comes late: then it says that it had no time. */
static const int SHORTEST_MS = 50;

typedef struct RunningProbe {
  ob_probe *probe; /* NULL: free */
  ProbeSlot *slot;
  uint64 number;
} RunningProbe;

static ob_engine *engine = NULL;
static RunningProbe running[MAX_RUNNING];
static int n_running = 0;

/* Whoever comes after this worker begins anew. Its session still waits. */
static void give_back(int, Datum) {
  LWLockAcquire(shared_state()->lock, LW_EXCLUSIVE);
  for (int i = 0; i < MAX_RUNNING; i++)
    if (running[i].probe && running[i].slot->number == running[i].number && running[i].slot->state == PROBE_RUNNING)
      running[i].slot->state = PROBE_WANTED;
  LWLockRelease(shared_state()->lock);
}

void probe_worker_init(ob_engine *engine_) {
  engine = engine_;
  before_shmem_exit(give_back, 0);
}

static RunningProbe *free_place(void) {
  for (int i = 0; i < MAX_RUNNING; i++)
    if (running[i].probe == NULL)
      return &running[i];
  return NULL;
}

static bool waits_here(const ProbeSlot *slot) {
  return slot->state == PROBE_WANTED && slot->database == MyDatabaseId;
}

bool probe_wanted(void) {
  SharedState *shared = shared_state();
  bool wanted = false;

  if (pg_atomic_read_u32(&shared->n_probes) == 0 || n_running == MAX_RUNNING)
    return false;
  LWLockAcquire(shared->lock, LW_SHARED);
  for (int i = 0; i < OUTBOX_MAX_PROBES && !wanted; i++)
    wanted = waits_here(&shared->probes[i]);
  LWLockRelease(shared->lock);
  return wanted;
}

/* The lock must be held exclusively. */
static void answer(ProbeSlot *slot, ProbeState state) {
  Assert(LWLockHeldByMeInMode(shared_state()->lock, LW_EXCLUSIVE));
  slot->state = state;
  SetLatch(slot->latch);
}

/* The lock must be held exclusively: nothing here waits. */
static void begin_one(ProbeSlot *slot, RunningProbe *place) {
  Assert(LWLockHeldByMeInMode(shared_state()->lock, LW_EXCLUSIVE));
  const WorkerSink *sink = worker_sink_of(slot->server);
  ob_error error;

  if (sink == NULL || sink_is_dropped(sink->state)) {
    answer(slot, PROBE_NO_SINK);
    return;
  }
  long left = milliseconds_until(moment_now(), slot->until);
  place->probe = worker_sink_probe(sink, (int)Max(left, SHORTEST_MS), slot->send, &error);
  if (place->probe == NULL) {
    slot->n_steps = 1;
    memset((void *)&slot->steps[0], 0, sizeof(slot->steps[0]));
    strlcpy(slot->steps[0].name, "probe", sizeof(slot->steps[0].name));
    strlcpy(slot->steps[0].message, error.message, sizeof(slot->steps[0].message));
    strlcpy(slot->steps[0].hint, error.hint, sizeof(slot->steps[0].hint));
    answer(slot, PROBE_DONE);
    return;
  }
  place->slot = slot;
  place->number = slot->number;
  slot->state = PROBE_RUNNING;
  n_running++;
}

void probe_begin(void) {
  Assert(!IsTransactionState());
  SharedState *shared = shared_state();

  LWLockAcquire(shared->lock, LW_EXCLUSIVE);
  for (int i = 0; i < OUTBOX_MAX_PROBES; i++) {
    RunningProbe *place = free_place();
    if (place == NULL)
      break;
    if (waits_here(&shared->probes[i]))
      begin_one(&shared->probes[i], place);
  }
  LWLockRelease(shared->lock);
}

void probe_poll(void) {
  for (int i = 0; i < MAX_RUNNING && n_running > 0; i++) {
    static ob_probe_step steps[OUTBOX_MAX_PROBE_STEPS];
    RunningProbe *each = &running[i];
    size_t n;
    if (each->probe == NULL)
      continue;
    bool done = ob_probe_poll(each->probe, steps, lengthof(steps), &n);
    LWLockAcquire(shared_state()->lock, LW_EXCLUSIVE);
    bool awaited = each->slot->number == each->number && each->slot->state == PROBE_RUNNING;
    if (done && awaited) {
      memcpy((void *)each->slot->steps, steps, sizeof(ob_probe_step) * n);
      each->slot->n_steps = (int)n;
      answer(each->slot, PROBE_DONE);
    }
    LWLockRelease(shared_state()->lock);
    if (done || !awaited) {
      ob_probe_finish(each->probe);
      each->probe = NULL;
      n_running--;
    }
  }
}

bool probe_running(void) {
  return n_running > 0;
}
