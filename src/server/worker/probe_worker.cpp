/*
 * probe_worker.cpp: the session holds a snapshot while it waits for the worker, so a probe takes at most 5 min.
 */
#include "server/worker/probe_worker.h"

#include "server/base/error_text.h"
#include "server/sinks/worker_sinks.h"

extern "C" {
#include "access/xact.h"
#include "storage/ipc.h"
}

/* Further probes wait, at most until their deadlines. */
enum { MAX_RUNNING = 16 };
/* The timeout of a probe that begins at its deadline or later: it then reports a timeout. */
static const int SHORTEST_MS = 50;

typedef struct RunningProbe {
  ob_probe *probe; /* NULL: free */
  ProbeSlot *slot;
  uint64 number;
} RunningProbe;

static ob_engines *engine = NULL;
static RunningProbe running[MAX_RUNNING];
static int n_running = 0;

/* At the worker's exit: sets its probes to PROBE_WANTED again for the next worker, because the sessions still wait.
 */
static void request_again(int, Datum) {
  LWLockAcquire(shared_state()->lock, LW_EXCLUSIVE);
  for (int i = 0; i < MAX_RUNNING; i++)
    if (running[i].probe && running[i].slot->number == running[i].number && running[i].slot->state == PROBE_RUNNING)
      running[i].slot->state = PROBE_WANTED;
  LWLockRelease(shared_state()->lock);
}

void probe_worker_init(ob_engines *engine_) {
  engine = engine_;
  before_shmem_exit(request_again, 0);
}

static RunningProbe *find_free(void) {
  for (int i = 0; i < MAX_RUNNING; i++)
    if (running[i].probe == NULL)
      return &running[i];
  return NULL;
}

static bool is_wanted_here(const ProbeSlot *slot) {
  return slot->state == PROBE_WANTED && slot->database == MyDatabaseId;
}

bool probe_wanted(void) {
  SharedState *shared = shared_state();
  bool wanted = false;

  if (pg_atomic_read_u32(&shared->n_probes) == 0 || n_running == MAX_RUNNING)
    return false;
  LWLockAcquire(shared->lock, LW_SHARED);
  for (int i = 0; i < OUTBOX_MAX_PROBES && !wanted; i++)
    wanted = is_wanted_here(&shared->probes[i]);
  LWLockRelease(shared->lock);
  return wanted;
}

/* The lock must be held exclusively. */
static void answer(ProbeSlot *slot, ProbeState state) {
  Assert(LWLockHeldByMeInMode(shared_state()->lock, LW_EXCLUSIVE));
  slot->state = state;
  SetLatch(slot->latch);
}

/* The lock must be held exclusively; starting a probe does not wait for the network. */
static void begin_one(ProbeSlot *slot, RunningProbe *free_probe) {
  Assert(LWLockHeldByMeInMode(shared_state()->lock, LW_EXCLUSIVE));
  const WorkerSink *sink = worker_sink_of(slot->server);
  ob_error error;

  if (sink == NULL || sink_is_dropped(sink->state)) {
    answer(slot, PROBE_NO_SINK);
    return;
  }
  long left = milliseconds_until(moment_now(), slot->until);
  free_probe->probe = worker_sink_probe(sink, (int)Max(left, SHORTEST_MS), slot->send, slot->topics, &error);
  if (free_probe->probe == NULL) {
    library_error(&error);
    slot->n_steps = 1;
    memset((void *)&slot->steps[0], 0, sizeof(slot->steps[0]));
    strlcpy(slot->steps[0].name, "probe", sizeof(slot->steps[0].name));
    strlcpy(slot->steps[0].message, error.message, sizeof(slot->steps[0].message));
    strlcpy(slot->steps[0].hint, error.hint, sizeof(slot->steps[0].hint));
    answer(slot, PROBE_DONE);
    return;
  }
  free_probe->slot = slot;
  free_probe->number = slot->number;
  slot->state = PROBE_RUNNING;
  n_running++;
}

void probe_begin(void) {
  Assert(!IsTransactionState());
  SharedState *shared = shared_state();

  LWLockAcquire(shared->lock, LW_EXCLUSIVE);
  for (int i = 0; i < OUTBOX_MAX_PROBES; i++) {
    RunningProbe *free_probe = find_free();
    if (free_probe == NULL)
      break;
    if (is_wanted_here(&shared->probes[i]))
      begin_one(&shared->probes[i], free_probe);
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
    bool done = each->probe->kind->probe_poll(each->probe, steps, lengthof(steps), &n);
    for (size_t j = 0; j < n; j++) {
      library_text(steps[j].message);
      library_text(steps[j].hint);
    }
    LWLockAcquire(shared_state()->lock, LW_EXCLUSIVE);
    bool session_waits = each->slot->number == each->number && each->slot->state == PROBE_RUNNING;
    if (session_waits && (done || (int)n > each->slot->n_steps)) {
      memcpy((void *)each->slot->steps, steps, sizeof(ob_probe_step) * n);
      each->slot->n_steps = (int)n;
      answer(each->slot, done ? PROBE_DONE : PROBE_RUNNING);
    }
    LWLockRelease(shared_state()->lock);
    if (done || !session_waits) {
      ob_release(each->probe);
      each->probe = NULL;
      n_running--;
    }
  }
}

bool probe_running(void) {
  return n_running > 0;
}
