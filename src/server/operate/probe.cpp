/* probe.cpp: outbox.probe(): asks the worker to try a sink, and waits for the result without holding a lock. */
#include "server/shmem/shared_state.h"

#include "server/base/library_version.h"
#include "server/base/settings.h"
#include "server/base/sql_function.h"
#include "server/catalog/route.h"
#include "server/shmem/wake.h"
#include "server/storage/owner_sql.h"

extern "C" {
#include "access/xlog.h"
#include "catalog/pg_type.h"
#include "storage/ipc.h"
#include "storage/latch.h"
#include "utils/builtins.h"
#include "utils/tuplestore.h"
#include "utils/wait_event.h"
}

static const int64 MIN_TIMEOUT_MS = 100;
static const int64 MAX_TIMEOUT_MS = 5 * 60 * 1000;
/* The worker ends the probe at its deadline; the session waits this much longer for the result. */
static const int GRACE_MS = 900;
/* A worker may start or exit while the session waits, so it checks at this interval. */
static const int CHECK_INTERVAL_MS = 100;

static int64 timeout_ms(const Interval *timeout) {
  int64 ms = timeout->time / 1000 + ((int64)timeout->month * DAYS_PER_MONTH + timeout->day) * (USECS_PER_DAY / 1000);

  if (ms < MIN_TIMEOUT_MS || ms > MAX_TIMEOUT_MS)
    ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE), errmsg("timeout of a probe is out of range"),
                    errdetail("It is " INT64_FORMAT " ms, and must be between " INT64_FORMAT " ms and " INT64_FORMAT
                              " minutes.",
                              ms, MIN_TIMEOUT_MS, MAX_TIMEOUT_MS / 60000),
                    errhint("Leave it out to wait as long as the sink does.")));
  return ms;
}

/* Raises an error when it is known beforehand that no worker runs. */
static void require_workers(void) {
  const char *detail = NULL, *hint = NULL;

  if (shared_state() == NULL) {
    detail = "The library is not in shared_preload_libraries.";
    hint = "Add outbox to shared_preload_libraries and restart the server.";
  } else if (RecoveryInProgress()) {
    detail = "This server is a standby: its workers start when it is promoted.";
    hint = "Probe from the primary, or after the promotion.";
  } else if (!setting_enabled) {
    detail = "outbox.enabled is off.";
    hint = "ALTER SYSTEM SET outbox.enabled = on; SELECT pg_reload_conf();";
  } else if (setting_workers == 0) {
    detail = "outbox.workers is 0.";
    hint = "ALTER SYSTEM SET outbox.workers = 1; SELECT pg_reload_conf();";
  }
  if (detail)
    ereport(ERROR, (errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE), errmsg("no worker runs that could probe"),
                    errdetail("%s", detail), errhint("%s", hint)));
}

static void report_no_worker(ProbeState state, int64 ms) {
  bool scarce = shared_state()->out_of_slots;

  ereport(ERROR,
          (errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
           state == PROBE_WANTED ? errmsg("no worker has begun the probe within " INT64_FORMAT " ms", ms)
                                 : errmsg("the worker has not ended the probe within " INT64_FORMAT " ms", ms),
           errdetail("%s",
                     scarce ? "The server has no free background worker slot."
                            : "The worker is starting, waits for a lock, or already runs as many probes as it can."),
           errhint("%s", scarce ? "Increase max_worker_processes; it takes a restart of the server."
                                : "See SELECT * FROM outbox.doctor(); and SELECT * FROM outbox.workers;")));
}

/* What the session finds before it asks the worker. */
typedef struct PendingTopics {
  char *names;  /* the topics of pending events, separated by commas; those that do not fit are left out */
  char *unseen; /* why they were not looked for, or NULL; and what to do */
  char *hint;
} PendingTopics;

/* In the caller's memory, which outlives SPI. */
static char *copy_value(int column) {
  const char *value = SPI_getvalue(SPI_tuptable->vals[0], SPI_tuptable->tupdesc, column);

  return value ? (char *)memcpy(SPI_palloc(strlen(value) + 1), value, strlen(value) + 1) : NULL;
}

static PendingTopics read_topics(Oid server) {
  static Statement sql = make_statement<OIDOID, OIDOID>(
      "SELECT t.topics, t.unseen, t.hint FROM outbox_internal.probe_topics($1, $2) AS t");
  Datum values[] = {ObjectIdGetDatum(server), ObjectIdGetDatum(GetUserId())};

  OwnerScope scope = owner_enter();
  owner_execute(&sql, values, NULL);
  PendingTopics found = {copy_value(1), copy_value(2), copy_value(3)};
  if (strlen(found.names) >= OUTBOX_PROBE_TOPICS_SIZE) {
    found.names[OUTBOX_PROBE_TOPICS_SIZE - 1] = '\0';
    *strrchr(found.names, ',') = '\0';
  }
  owner_leave(scope);
  return found;
}

static int64 patience_ms(Oid server) {
  static Statement sql = make_statement<OIDOID>("SELECT outbox_internal.probe_patience($1)");
  Datum values[] = {ObjectIdGetDatum(server)};

  OwnerScope scope = owner_enter();
  owner_execute(&sql, values, NULL);
  bool is_null;
  const int64 ms = DatumGetInt64(SPI_getbinval(SPI_tuptable->vals[0], SPI_tuptable->tupdesc, 1, &is_null));
  owner_leave(scope);
  return ms;
}

static ProbeSlot *take_slot(Oid server, int64 ms, bool send, const char *topics) {
  SharedState *shared = shared_state();
  ProbeSlot *slot = NULL;

  LWLockAcquire(shared->lock, LW_EXCLUSIVE);
  for (int i = 0; i < OUTBOX_MAX_PROBES && slot == NULL; i++)
    if (shared->probes[i].state == PROBE_FREE)
      slot = &shared->probes[i];
  if (slot) {
    slot->state = PROBE_WANTED;
    slot->number = ++shared->last_probe;
    slot->database = MyDatabaseId;
    slot->server = server;
    slot->send = send;
    strlcpy(slot->topics, topics, sizeof(slot->topics));
    slot->until = moment_after(moment_now(), ms);
    slot->latch = MyLatch;
    slot->n_steps = 0;
    pg_atomic_fetch_add_u32(&shared->n_probes, 1);
  }
  LWLockRelease(shared->lock);
  if (slot == NULL)
    ereport(ERROR, (errcode(ERRCODE_CONFIGURATION_LIMIT_EXCEEDED), errmsg("too many probes at once"),
                    errdetail("%d are under way on this server.", OUTBOX_MAX_PROBES), errhint("Try again later.")));
  return slot;
}

/* Runs also when the session is cancelled or ends. */
static void free_slot(int, Datum slot) {
  SharedState *shared = shared_state();

  LWLockAcquire(shared->lock, LW_EXCLUSIVE);
  ((ProbeSlot *)DatumGetPointer(slot))->state = PROBE_FREE;
  pg_atomic_fetch_sub_u32(&shared->n_probes, 1);
  LWLockRelease(shared->lock);
}

/* For who looks at a probe while it goes on: the rows come when it has ended. */
static void tell_step(const ob_probe_step *step) {
  ereport(DEBUG1, (errmsg_internal("probe step \"%s\" %s after %.1f ms", step->name, step->ok ? "passed" : "failed",
                                   step->milliseconds),
                   errdetail_internal("%s", step->message), step->hint[0] ? errhint("%s", step->hint) : 0));
}

static ProbeState wait_for_answer(ProbeSlot *slot) {
  static uint32 wait_event = 0;
  Moment end = moment_after(slot->until, GRACE_MS);
  int told = 0;

  if (wait_event == 0)
    wait_event = outbox_wait_event("OutboxProbe");

  for (;;) {
    ResetLatch(MyLatch);
    LWLockAcquire(shared_state()->lock, LW_SHARED);
    ProbeState state = slot->state;
    const bool has_news = told < slot->n_steps;
    ob_probe_step step;
    if (has_news)
      memcpy((void *)&step, (const void *)&slot->steps[told], sizeof(step));
    LWLockRelease(shared_state()->lock);
    if (has_news) {
      tell_step(&step);
      told++;
      continue;
    }
    long left = milliseconds_until(moment_now(), end);
    if ((state != PROBE_WANTED && state != PROBE_RUNNING) || left <= 0)
      return state;
    if (state == PROBE_WANTED)
      wake_workers();
    (void)WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH, Min(left, CHECK_INTERVAL_MS),
                    wait_event);
    CHECK_FOR_INTERRUPTS();
  }
}

/* The sink might have got its answer later: the caller gave it less time than its options do. */
static void say_too_short(ob_probe_step *last, const char *sink, int64 own_ms, bool send) {
  if (last->ok)
    return;
  snprintf(last->hint, sizeof(last->hint),
           "SELECT * FROM outbox.probe(%s, '" INT64_FORMAT " ms'%s); -- waits as long as the sink does",
           quote_literal_cstr(sink), own_ms, send ? ", send => true" : "");
}

/* A step that was left out: neither passed nor failed. */
static void put_unseen(ReturnSetInfo *result, const char *name, const char *why, const char *hint) {
  Datum values[5] = {CStringGetTextDatum(name), 0, 0, CStringGetTextDatum(why), 0};
  bool nulls[5] = {false, true, true, false, hint == NULL};

  if (hint)
    values[4] = CStringGetTextDatum(hint);
  tuplestore_putvalues(result->setResult, result->setDesc, values, nulls);
}

/* Waits, frees the slot, and returns a copy of it. */
static ProbeSlot *wait_for_result(ProbeSlot *slot) {
  ProbeSlot *found = palloc_object(ProbeSlot);
  PG_ENSURE_ERROR_CLEANUP(free_slot, PointerGetDatum(slot));
  {
    ProbeState state = wait_for_answer(slot);
    LWLockAcquire(shared_state()->lock, LW_SHARED);
    memcpy((void *)found, (const void *)slot, sizeof(ProbeSlot));
    LWLockRelease(shared_state()->lock);
    found->state = state;
  }
  PG_END_ENSURE_ERROR_CLEANUP(free_slot, PointerGetDatum(slot));
  free_slot(0, PointerGetDatum(slot));
  return found;
}

static void put_step(ReturnSetInfo *result, const ob_probe_step *step) {
  Datum values[5];
  bool nulls[5] = {false};

  values[0] = CStringGetTextDatum(step->name);
  values[1] = BoolGetDatum(step->ok);
  values[2] = Float8GetDatum(step->milliseconds);
  values[3] = CStringGetTextDatum(step->message);
  values[4] = CStringGetTextDatum(step->hint);
  nulls[4] = step->hint[0] == '\0';
  tuplestore_putvalues(result->setResult, result->setDesc, values, nulls);
}

SQL_FUNCTION(outbox_probe) {
  ReturnSetInfo *result = rows_of(fcinfo, 5);

  if (PG_ARGISNULL(0) || PG_ARGISNULL(2))
    ereport(ERROR, (errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED), errmsg("arguments of a probe must not be null"),
                    errhint("Name a sink. The timeout may be left out.")));
  char *name = text_to_cstring(PG_GETARG_TEXT_PP(0));
  const RouteSink *sink = route_require(name, GetUserId());
  Oid server = sink->server_oid;
  if (sink->is_manual)
    ereport(
        ERROR,
        (errcode(ERRCODE_WRONG_OBJECT_TYPE), errmsg("sink \"%s\" has nothing to probe", name),
         errdetail("It is of kind outbox_manual: it sends nothing; consumers fetch its events by outbox.claim()."),
         errhint("SELECT name, state, in_flight, pending FROM outbox.sinks WHERE name = %s;",
                 quote_literal_cstr(name))));
  require_workers();

  const int64 own_ms = patience_ms(server);
  const int64 ms = PG_ARGISNULL(1) ? own_ms : timeout_ms(PG_GETARG_INTERVAL_P(1));
  const Moment began = moment_now();
  const PendingTopics topics = read_topics(server);
  ProbeSlot *slot = take_slot(server, ms, PG_GETARG_BOOL(2), topics.names);
  ProbeSlot *found = wait_for_result(slot);

  if (found->state == PROBE_NO_SINK)
    ereport(ERROR,
            (errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE), errmsg("the worker finds no sink \"%s\"", name),
             errdetail("It was created in this transaction, which has not committed, or has just been dropped."),
             errhint("Commit, then probe.")));
  if (found->state != PROBE_DONE)
    report_no_worker(found->state, ms);
  if (ms < own_ms && found->n_steps > 0 && moment_is_past(began, moment_now(), ms))
    say_too_short(&found->steps[found->n_steps - 1], name, own_ms, PG_GETARG_BOOL(2));
  for (int i = 0; i < found->n_steps; i++)
    put_step(result, &found->steps[i]);
  if (topics.unseen)
    put_unseen(result, "pending events", topics.unseen, topics.hint);
  PG_RETURN_NULL();
}
