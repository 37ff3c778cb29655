/*
 * worker_stops.cpp: counts the failing time for `disable_after` in shared memory, and writes it to the table at most
 * every 10 min instead of at each failure.
 */
#include "server/sinks/worker_stops.h"

#include "server/base/fault_point.h"
#include "server/process/worker_error.h"
#include "server/process/worker_slot.h"
#include "server/process/worker_transaction.h"
#include "server/storage/owner_sql.h"
#include "server/storage/sql.h"

#include <algorithm>

extern "C" {
#include "access/xact.h"
#include "catalog/namespace.h"
#include "catalog/pg_type.h"
#include "utils/builtins.h"
#include "utils/inval.h"
#include "utils/lsyscache.h"
}

/* Requests in flight end normally: every endpoint's timeout is shorter. */
static const int STOP_GRACE_MS = 10 * 60 * 1000;
/* The longest step of the default schedule. Longer times between two tries do not count as failing. */
static const int64 LONGEST_GAP_MS = 24 * 60 * 60 * 1000;
/* Failures within this time after a counted one are not counted, which saves taking the lock. */
static const int TICK_MS = 50;
static const int64 FIRST_WRITE_MS = 60 * 1000;
static const int64 WRITE_EVERY_MS = 10 * 60 * 1000;
static const int WRITE_PAUSE_MS = 5000; /* after an error */

static Oid stopped_oid = InvalidOid;
static void (*notify_changed)(void) = NULL;
static bool write_wanted = false;
static bool catalog_wanted = false; /* before anything is written, the names of the sinks are to be read again */
static Moment write_at = MOMENT_NONE;

static void relation_changed(Datum, Oid relation) {
  if (relation == InvalidOid || relation == stopped_oid)
    notify_changed();
}

void worker_stops_init(void (*changed)(void)) {
  notify_changed = changed;
  CacheRegisterRelcacheCallback(relation_changed, (Datum)0);
}

static void lock(void) {
  LWLockAcquire(shared_state()->lock, LW_EXCLUSIVE);
}

static void unlock(void) {
  LWLockRelease(shared_state()->lock);
}

/* ---- which are stopped ------------------------------------------------------------------------------------- */

static WorkerSink *find_by_name(Datum name) {
  text *value = DatumGetTextPP(name);

  return worker_sink_find(VARDATA_ANY(value), VARSIZE_ANY_EXHDR(value));
}

static int index_of(const WorkerSink *sink) {
  const std::span<WorkerSink *> sinks = worker_sinks_all();
  const auto place = std::find(sinks.begin(), sinks.end(), sink);

  Assert(place != sinks.end());
  return (int)(place - sinks.begin());
}

static bool visit_stopped(TupleTableSlot *row, void *found) {
  if (const WorkerSink *sink = find_by_name(row->tts_values[0]))
    ((bool *)found)[index_of(sink)] = true;
  return true;
}

static bool visit_failing(TupleTableSlot *row, void *) {
  WorkerSink *sink = find_by_name(row->tts_values[0]);
  FailingClock *clock = sink && sink->stats ? &sink->stats->failing : NULL;

  if (clock == NULL)
    return true;
  lock();
  if (!clock->known) {
    clock->failed_ms = clock->written_ms = DatumGetInt64(row->tts_values[1]);
    clock->last_failed_at = DatumGetTimestampTz(row->tts_values[2]);
    clock->has_row = true;
  }
  unlock();
  return true;
}

static void forget_failures(FailingClock *clock) {
  clock->failed_ms = clock->last_failed_at = 0;
  clock->last_failed = MOMENT_NONE;
}

static void reset(WorkerSink *sink) {
  if (sink->stats == NULL)
    return;
  lock();
  forget_failures(&sink->stats->failing);
  unlock();
}

static void stop(WorkerSink *sink) {
  if (sink->handle && worker_slot()->index == 0 && sink->status.state != OB_SINK_DISABLED)
    ereport(LOG, (errmsg("outbox sink \"%s\" is stopped until outbox.resume()", sink->name)));
  OUTBOX_FAULT_POINT("sink.stopping");
  sink->cursor->set_has_backlog(false);
  reset(sink); /* after a resume the sink has the whole of disable_after again */
  worker_sink_close(sink, SINK_STOPPED, STOP_GRACE_MS);
}

static void resume(WorkerSink *sink) {
  if (worker_slot()->index == 0)
    ereport(LOG, (errmsg("outbox sink \"%s\" goes on", sink->name)));
  OUTBOX_FAULT_POINT("sink.resuming");
  worker_sink_reopen(sink);
  sink->cursor->restart(GetCurrentTimestamp());
}

/* outbox.resume() has marked the sink, whether or not its transaction has committed: after a rollback, the next
 * change of a sink ends the pause. */
static void end_pause(WorkerSink *sink) {
  if (sink->stats == NULL || sink->stats->pauses_ended == sink->pauses_ended)
    return;
  sink->pauses_ended = sink->stats->pauses_ended;
  if (sink->state != SINK_OPEN)
    return;
  ob_sink_order order = {};
  order.end_pause = true;
  sink_tell(sink, order);
  sink->cursor->early_retry.end_pause();
}

void worker_stops_reload(void) {
  Assert(IsTransactionState());
  static Statement read_stopped = make_statement<>("SELECT sink FROM outbox.stopped_sinks");
  static Statement read_failing =
      make_statement<>("SELECT sink, (extract(epoch FROM failed_for) * 1000)::bigint, last_failed_at "
                       "FROM outbox_internal.failing_sinks");
  const std::span<WorkerSink *> sinks = worker_sinks_all();
  bool *found_stopped = palloc0_array(bool, Max(sinks.size(), 1));
  bool all_known = true;

  stopped_oid = get_relname_relid("stopped_sinks", get_namespace_oid("outbox", false));
  for (const WorkerSink *sink : sinks)
    all_known &= sink->stats == NULL || sink->stats->failing.known;
  SPI_connect();
  statement_read(&read_stopped, NULL, InvalidSnapshot, visit_stopped, found_stopped);
  if (!all_known)
    statement_read(&read_failing, NULL, InvalidSnapshot, visit_failing, NULL);
  SPI_finish();
  for (size_t i = 0; i < sinks.size(); i++) {
    if (sinks[i]->stats)
      sinks[i]->stats->failing.known = true;
    if (found_stopped[i] && !sinks[i]->stopped && !sink_is_dropped(sinks[i]->state))
      stop(sinks[i]);
    else if (!found_stopped[i] && sinks[i]->stopped)
      resume(sinks[i]);
    end_pause(sinks[i]);
  }
  pfree(found_stopped);
}

void worker_stops_altered(WorkerSink *sink) {
  reset(sink);
}

/* ---- how long it has been failing -------------------------------------------------------------------------- */

static void note_failure(WorkerSink *sink, Now now) {
  FailingClock *clock = &sink->stats->failing;

  if (!moment_is_past(clock->last_failed, now.moment, TICK_MS))
    return;
  lock();
  int64 gap_ms = (now.moment.us - clock->last_failed.us) / 1000;
  if (clock->last_failed != MOMENT_NONE && gap_ms > 0 && gap_ms <= LONGEST_GAP_MS)
    clock->failed_ms += gap_ms;
  clock->last_failed = now.moment;
  clock->last_failed_at = now.wall;
  unlock();
}

void worker_stops_succeeded(SinkStats *stats) {
  Assert(LWLockHeldByMeInMode(shared_state()->lock, LW_EXCLUSIVE));
  forget_failures(&stats->failing);
}

static bool has_failed_too_long(const WorkerSink *sink) {
  return sink->stats && sink->common.disable_after_ms > 0 &&
         sink->stats->failing.failed_ms >= sink->common.disable_after_ms;
}

static bool has_to_stop(const WorkerSink *sink) {
  bool is_disabled_by_endpoint = sink->state == SINK_OPEN && sink->status.state == OB_SINK_DISABLED;

  return !sink->stopped && !sink_is_dropped(sink->state) && (is_disabled_by_endpoint || has_failed_too_long(sink));
}

/* Is the sink's failing time to be written? The interval grows with disable_after, up to 10 min. */
static bool clock_to_write(const WorkerSink *sink) {
  const FailingClock *clock = sink->stats ? &sink->stats->failing : NULL;

  if (clock == NULL || sink->common.disable_after_ms == 0)
    return clock && clock->has_row;
  if (clock->last_failed_at == 0 || has_to_stop(sink))
    return clock->has_row;
  int64 step = clock->has_row ? Min(WRITE_EVERY_MS, sink->common.disable_after_ms / 20)
                              : Min(FIRST_WRITE_MS, sink->common.disable_after_ms / 10);
  return clock->failed_ms > 0 && clock->failed_ms - (clock->has_row ? clock->written_ms : 0) >= step;
}

void worker_stops_look(WorkerSink *sink, Now now) {
  if (sink->status.failed_tries != sink->failed_tries) {
    sink->failed_tries = sink->status.failed_tries;
    if (sink->stats && sink->common.disable_after_ms > 0 && !sink->stopped)
      note_failure(sink, now);
  }
  write_wanted = write_wanted || has_to_stop(sink) || clock_to_write(sink);
}

/* ---- writing it down --------------------------------------------------------------------------------------- */

static bool disable(WorkerSink *sink) {
  static Statement write =
      make_statement<TEXTOID, TEXTOID, TEXTOID>("INSERT INTO outbox.stopped_sinks (sink, state, reason, error) "
                                                "VALUES ($1, 'disabled', $2, nullif($3, '')) ON CONFLICT DO NOTHING");
  bool is_gone = !has_failed_too_long(sink);
  const char *error = is_gone || sink->stats == NULL || sink->status.last_error[0] != '\0' ? sink->status.last_error
                                                                                           : sink->stats->last_error;
  Datum values[] = {CStringGetTextDatum(sink->name), CStringGetTextDatum(is_gone ? "410" : "disable_after"),
                    CStringGetTextDatum(error)};

  OUTBOX_FAULT_POINT("sink.before_disable");
  return statement_write(&write, values, NULL, NULL) > 0;
}

static void write_clock(const WorkerSink *sink) {
  static Statement write = make_statement<TEXTOID, INT8OID, TIMESTAMPTZOID>(
      "INSERT INTO outbox_internal.failing_sinks (sink, failed_for, last_failed_at) "
      "VALUES ($1, $2 * interval '1 millisecond', $3) ON CONFLICT (sink) DO UPDATE "
      "SET failed_for = excluded.failed_for, last_failed_at = excluded.last_failed_at");
  static Statement forget = make_statement<TEXTOID>("DELETE FROM outbox_internal.failing_sinks WHERE sink = $1");
  const FailingClock *clock = &sink->stats->failing;
  Datum values[] = {CStringGetTextDatum(sink->name), Int64GetDatum(clock->failed_ms),
                    TimestampTzGetDatum(clock->last_failed_at)};

  (void)statement_write(clock->last_failed_at != 0 && !has_to_stop(sink) ? &write : &forget, values, NULL, NULL);
}

static void say_disabled(const WorkerSink *sink) {
  ereport(WARNING, (errmsg("outbox sink \"%s\" is disabled: %s", sink->name,
                           has_failed_too_long(sink) ? "it has been failing for disable_after without a success"
                                                     : sink->status.last_error),
                    errhint("Its events are kept. When the cause is gone: SELECT outbox.resume(%s);",
                            quote_literal_cstr(sink->name))));
}

/* Sets ((bool *)disabled)[i] for each sink that it disables. */
static void write_all(void *disabled) {
  const std::span<WorkerSink *> sinks = worker_sinks_all();

  hold_sink_names();
  catalog_wanted = worker_sinks_stale(); /* a name may be that of another sink by now */
  if (catalog_wanted) {
    write_wanted = true;
    return;
  }
  for (size_t i = 0; i < sinks.size(); i++) {
    WorkerSink *sink = sinks[i];
    if (clock_to_write(sink)) {
      FailingClock before = sink->stats->failing;
      write_clock(sink);
      lock(); /* if the commit fails, the time is only written later */
      sink->stats->failing.has_row = before.last_failed_at != 0 && !has_to_stop(sink);
      sink->stats->failing.written_ms = before.failed_ms;
      unlock();
    }
    ((bool *)disabled)[i] = has_to_stop(sink);
    if (has_to_stop(sink) && disable(sink))
      say_disabled(sink);
  }
}

/* Stops the sinks before their rows of outbox.stopped_sinks are read again. So the worker knows them as stopped if a
 * user deletes a row at once, and resumes them. */
static void stop_disabled(const bool *disabled) {
  const std::span<WorkerSink *> sinks = worker_sinks_all();

  for (size_t i = 0; i < sinks.size(); i++)
    if (disabled[i])
      stop(sinks[i]);
}

bool worker_stops_write(Moment now) {
  Assert(!IsTransactionState());
  if (!write_wanted || now < write_at)
    return true;
  write_wanted = catalog_wanted = false;
  bool *disabled = palloc0_array(bool, Max(worker_sinks_all().size(), 1));
  /* An uncommitted pause or resume of one sink must not block the other sinks. */
  bool done = worker_transaction("SET LOCAL lock_timeout = '20ms'", write_all, disabled);
  if (done)
    stop_disabled(disabled);
  pfree(disabled);
  write_at = done ? now : moment_after(now, WRITE_PAUSE_MS);
  return !catalog_wanted;
}
