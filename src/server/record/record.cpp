/*
 * record.cpp: rows move by DELETE and INSERT and never by an UPDATE of `status`: one concurrent move between
 * partitions makes everybody's SKIP LOCKED fail. Own commits are asynchronous: what a crash forgets is sent again,
 * which at-least-once allows.
 */
#include "server/record/record.h"

#include "server/base/is_worker.h"
#include "server/event/status_sql.h"
#include "server/inflight/blocking.h"
#include "server/inflight/dead_letters.h"
#include "server/inflight/decision_log.h"
#include "server/inflight/in_flight.h"
#include "server/inflight/sink_log.h"
#include "server/record/out_of_order.h"
#include "server/sinks/sink_cursor.h"
#include "server/sinks/worker_sinks.h"
#include "server/sinks/worker_stops.h"
#include "server/storage/row_lock.h"
#include "server/storage/sql.h"
#include "server/storage/unmodified_rows.h"

#include <algorithm>

extern "C" {
#include "access/xact.h"
#include "catalog/namespace.h"
#include "catalog/pg_type.h"
#include "common/pg_prng.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/datetime.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
}

static const int RECORD_MAX = 20000;
static const int DAY_GRACE_MS = 10 * 1000;
static const int TROUBLE_PAUSE_MS = 1000; /* doubles with each failure, to a minute */

static bool day_missing = false;
static int record_limit = RECORD_MAX; /* less while a row that cannot be recorded is looked for */
static int n_troubled = 0;            /* such rows that were found */
static int n_tried = 0;
static int n_busy = 0;
static InFlightEvent *tried = NULL; /* the first of them */

static Statement delete_sent = {"DELETE FROM outbox.events_pending WHERE ctid = ANY ($1)", 1, {TIDARRAYOID}, NULL};
static Statement keep_sent = {"WITH gone AS (DELETE FROM outbox.events_pending WHERE ctid = ANY ($1) RETURNING *) "
                              "INSERT INTO outbox.events (" MOVED_COLUMNS
                              ", overtaken_by, attempts, last_error, last_attempt_at, status, sent_at) "
                              "SELECT " MOVED_COLUMNS
                              ", overtaken_by, attempts, last_error, last_attempt_at, 'SENT', $2 FROM gone",
                              2,
                              {TIDARRAYOID, TIMESTAMPTZOID},
                              NULL};
static Statement move_to_dead_letters = {
    "WITH gone AS (DELETE FROM outbox.events_pending WHERE ctid = ANY ($1) RETURNING *) "
    "INSERT INTO outbox.events (" MOVED_COLUMNS ", overtaken_by, attempts, last_error, last_attempt_at, status) "
    "SELECT " MOVED_COLUMNS ", overtaken_by, " ONE_MORE_ATTEMPT ", f.error, f.ended, 'FAILED' FROM gone "
    "JOIN unnest($2, $3, $4) AS f (at, error, ended) ON f.at = position",
    4,
    {TIDARRAYOID, INT8ARRAYOID, TEXTARRAYOID, TIMESTAMPTZARRAYOID},
    NULL};
/* With the present name of a renamed sink, by which it is found when it is due. */
static Statement reschedule = {
    "UPDATE outbox.events_pending AS e SET attempts = CASE WHEN f.spent > 0 THEN " ONE_MORE_ATTEMPT
    " ELSE greatest(attempts, 1) END, last_error = f.error, "
    "last_attempt_at = f.ended, "
    "available_at = f.next, blocked_by = nullif(f.blocked_by, 0), "
    "redrive_late = nullif(redrive_late, false), sink = CASE WHEN e.sink = f.sink OR EXISTS "
    "(SELECT FROM outbox.events_pending AS o WHERE o.id = e.id AND o.sink = f.sink) THEN e.sink ELSE f.sink END "
    "FROM unnest($1, $2, $3, $4, $5, $6, $7) AS f (place, error, ended, next, blocked_by, sink, spent) "
    "WHERE e.ctid = f.place",
    7,
    {TIDARRAYOID, TEXTARRAYOID, TIMESTAMPTZARRAYOID, TIMESTAMPTZARRAYOID, INT8ARRAYOID, TEXTARRAYOID, INT8ARRAYOID},
    NULL};

/* One kind of recording in the running transaction. */
typedef struct Batch {
  ItemPointerData *tids;
  InFlightEvent **events;
  int n;
} Batch;

static Batch batch_of(int max) {
  Batch batch = {(ItemPointerData *)palloc(sizeof(ItemPointerData) * max),
                 (InFlightEvent **)palloc(sizeof(InFlightEvent *) * max), 0};

  return batch;
}

static void add(Batch *batch, InFlightEvent *event, ItemPointerData ctid) {
  batch->tids[batch->n] = ctid;
  batch->events[batch->n++] = event;
}

static Datum errors_of(const Batch *batch) {
  Datum *values = (Datum *)palloc(sizeof(Datum) * Max(batch->n, 1));

  for (int i = 0; i < batch->n; i++)
    values[i] = CStringGetTextDatum(batch->events[i]->error ? batch->events[i]->error : "");
  return text_array(values, batch->n);
}

static Datum times_array(Datum *times, int n) {
  return PointerGetDatum(construct_array(times, n, TIMESTAMPTZOID, 8, FLOAT8PASSBYVAL, TYPALIGN_DOUBLE));
}

static Datum ends_of(const Batch *batch) {
  Datum *values = (Datum *)palloc(sizeof(Datum) * Max(batch->n, 1));

  for (int i = 0; i < batch->n; i++)
    values[i] = TimestampTzGetDatum(batch->events[i]->ended_at);
  return times_array(values, batch->n);
}

static void record_dead(const Batch *batch) {
  int64 *positions = (int64 *)palloc(sizeof(int64) * Max(batch->n, 1));

  for (int i = 0; i < batch->n; i++) {
    const InFlightEvent *event = batch->events[i];
    positions[i] = event->position;
    dispatcher().dead_letter_keys.note(event->key_hash);
    if (sink_of(event)->common.hold) /* its sink may hold only since it ended */
      key_block(sink_of(event)->oid, event->key_hash, event->position);
    else if (event->suspect) /* its key waited for the verdict */
      blocked_keys().release(sink_of(event)->oid, event->key_hash, event->position);
  }
  Datum values[] = {tid_array(batch->tids, batch->n), int8_array(positions, batch->n), errors_of(batch),
                    ends_of(batch)};
  statement_write(&move_to_dead_letters, values, NULL, NULL);
}

static void record_retries(const Batch *batch, Now now) {
  Datum *times = (Datum *)palloc(sizeof(Datum) * Max(batch->n, 1));
  int64 *holders = (int64 *)palloc(sizeof(int64) * Max(batch->n, 1));
  int64 *spent = (int64 *)palloc(sizeof(int64) * Max(batch->n, 1));
  Datum *names = (Datum *)palloc(sizeof(Datum) * Max(batch->n, 1));

  for (int i = 0; i < batch->n; i++) {
    InFlightEvent *event = batch->events[i];
    WorkerSink *sink = sink_of(event);
    int64 delay = event->retry_after_ms >= 0
                      ? event->retry_after_ms
                      : ob_retry_delay_ms(sink->common.retry, event->attempts + 1, event->slow_retry,
                                          pg_prng_uint64(&pg_global_prng_state));
    /* Not in this very round, in which the event is still in flight. */
    TimestampTz next =
        Max(TimestampTzPlusMilliseconds(event->ended_at, delay), TimestampTzPlusMilliseconds(now.wall, 1));
    times[i] = TimestampTzGetDatum(next);
    names[i] = CStringGetTextDatum(sink->name);
    sink->cursor->due.expect(next);
    /* Behind an older failing event of its key it waits like any other. */
    const BlockedKey *key = blocked_keys().find(sink->oid, event->key_hash);
    spent[i] = event->outcome == Outcome::RETRY; /* a wait is no attempt, but makes the row the head of its key */
    holders[i] = key && key->state == KeyState::BLOCKED && key->blocker != event->position ? key->group : 0;
  }
  Datum values[] = {tid_array(batch->tids, batch->n),
                    errors_of(batch),
                    ends_of(batch),
                    times_array(times, batch->n),
                    int8_array(holders, batch->n),
                    text_array(names, batch->n),
                    int8_array(spent, batch->n)};
  statement_write(&reschedule, values, NULL, NULL);
}

/* Without a partition for today nothing could be recorded at all: better no audit trail than that. But the day may be
 * about to be made, after a long time without a worker. */
typedef enum Day { DAY_THERE, DAY_EXPECTED, DAY_MISSING } Day;

static Day day_of(Now now) {
  static int checked_day = 0, missing_day = 0;
  static Moment missing_since = MOMENT_NONE, warned_at = MOMENT_NONE;
  int day = (int)(now.wall / USECS_PER_DAY), year, month, mday;
  char name[NAMEDATALEN];

  if (day == checked_day)
    return DAY_THERE;
  j2date(day + POSTGRES_EPOCH_JDATE, &year, &month, &mday);
  snprintf(name, sizeof(name), "events_sent_%04d%02d%02d", year, month, mday);
  if (OidIsValid(get_relname_relid(name, get_namespace_oid("outbox", false)))) {
    checked_day = day;
    return DAY_THERE;
  }
  if (missing_day != day) {
    missing_day = day;
    missing_since = now.moment;
    day_missing = true;
  }
  if (!moment_is_past(missing_since, now.moment, DAY_GRACE_MS))
    return DAY_EXPECTED;
  if (warned_at == MOMENT_NONE || moment_is_past(warned_at, now.moment, 3600 * 1000)) {
    warned_at = now.moment;
    ereport(WARNING,
            (errmsg("outbox deletes delivered events although they should be kept"),
             errdetail("There is no partition outbox.%s.", name), errhint("SELECT outbox.run_maintenance();")));
  }
  return DAY_MISSING;
}

/* A user may have given the event to another sink while it was on its way: then that one has it still to come. */
static bool is_for_its_sink(TupleTableSlot *row, TupleDesc desc, const RowLock *lock) {
  static AttrNumber column = InvalidAttrNumber;
  InFlightEvent *event = (InFlightEvent *)lock->owner;
  bool is_null;

  Datum name = slot_getattr(row, column_number(desc, "sink", &column), &is_null);
  text *now = is_null ? NULL : DatumGetTextPP(name);
  WorkerSink *sink = now ? worker_sink_find(VARDATA_ANY(now), VARSIZE_ANY_EXHDR(now)) : NULL;
  if (sink && sink != sink_of(event))
    event->given_to = sink->oid;
  return sink == sink_of(event);
}

static bool is_failing_for_its_sink(TupleTableSlot *row, TupleDesc desc, const RowLock *lock) {
  sink_log_see_failing((const InFlightEvent *)lock->owner, row, desc);
  return is_for_its_sink(row, desc, lock);
}

static RowLock lock_of(InFlightEvent *event) {
  return {event->position, place_of(&event->row), ROW_GONE, event, event->row.writer, event->row.table};
}

/* Those whose time has come. One that failed before goes alone, in its turn. */
static int choose_ended(RowLock *locks, int max, Moment now) {
  static bool alone = false;
  InFlightEvent *troubled = NULL;
  int n = 0;

  n_troubled = 0;
  for (InFlightEvent *event = in_flight().first_ended(); event; event = event->next) {
    bool due = event->record_after <= now;
    if (event->record_failures > 0) {
      n_troubled++;
      troubled = due ? event : troubled;
    } else if (due && n < max) {
      locks[n++] = lock_of(event);
    }
  }
  alone = troubled && (n == 0 || !alone);
  if (alone) {
    n = 0;
    locks[n++] = lock_of(troubled);
  }
  n_tried = n;
  tried = n > 0 ? (InFlightEvent *)locks[0].owner : NULL;
  return n;
}

bool record_in_trouble(void) {
  return record_limit < RECORD_MAX || n_troubled > 0;
}

bool record_aborted(Now now, const char *error) {
  Assert(!IsTransactionState());
  if (n_tried > 1) {
    record_limit = Max(1, n_tried / 2);
    return true;
  }
  if (n_tried == 0)
    return false;
  if (sink_of(tried)->stats)
    shared_sink_error(sink_of(tried)->stats, error, now.wall);
  tried->record_after = moment_after(now.moment, TROUBLE_PAUSE_MS << Min(tried->record_failures, 6));
  return in_flight().record_failed(tried) && n_troubled++ == 0; /* if there are others, it may be all of them */
}

/* Very many of them are tried less often. */
static void try_later(InFlightEvent *event, Moment now) {
  event->record_after = moment_after(now, ROW_BUSY_PAUSE_MS + n_busy++ / 10);
}

/* A user has deleted or moved the row: nothing is left to say, and its key waits for nobody. */
static void forget_deleted_row(InFlightEvent *event) {
  in_flight().gone(event);
  blocked_keys().release(sink_of(event)->oid, event->key_hash, event->position);
}

/* What did not arrive. */
static void record_failures(RowLock *locks, int n, Now now) {
  Batch dead = batch_of(Max(n, 1)), retried = batch_of(Max(n, 1));

  row_lock(locks, n, is_failing_for_its_sink);
  for (int i = 0; i < n; i++) {
    InFlightEvent *event = (InFlightEvent *)locks[i].owner;
    if (locks[i].result == ROW_BUSY) {
      try_later(event, now.moment);
      continue;
    }
    if (locks[i].result == ROW_GONE) {
      forget_deleted_row(event);
      continue;
    }
    in_flight().recorded(event);
    add(event->outcome == Outcome::REJECTED ? &dead : &retried, event, locks[i].ctid);
  }
  if (dead.n > 0)
    record_dead(&dead);
  if (retried.n > 0)
    record_retries(&retried, now);
}

/* Delivered rows that nobody has touched and that have overtaken nothing just leave: almost all. They come first;
 * returns how many. */
static int record_untouched(RowLock *locks, int n) {
  int plain = (int)(std::partition(locks, locks + n,
                                   [](const RowLock &lock) {
                                     const InFlightEvent *event = (const InFlightEvent *)lock.owner;
                                     return sink_of(event)->common.retention_ms == 0 && !out_of_order_possible(event);
                                   }) -
                    locks);
  int deleted = heap_delete_unmodified(locks, plain);

  for (int i = 0; i < deleted; i++)
    in_flight().recorded((InFlightEvent *)locks[i].owner);
  return deleted;
}

/* What was delivered; earlier ones of its key that were not must have been written down. */
static void record_sent(RowLock *locks, int n, Now now) {
  Batch sent = batch_of(Max(n, 1)), kept = batch_of(Max(n, 1));
  InFlightEvent **delivered = (InFlightEvent **)palloc(sizeof(InFlightEvent *) * Max(n, 1));
  int n_delivered = 0;

  row_lock(locks, n, is_for_its_sink);
  for (int i = 0; i < n; i++) {
    InFlightEvent *event = (InFlightEvent *)locks[i].owner;
    if (locks[i].result == ROW_BUSY || (sink_of(event)->common.retention_ms > 0 && day_of(now) == DAY_EXPECTED))
      try_later(event, now.moment);
    else
      delivered[n_delivered++] = event;
  }
  out_of_order_mark(delivered, n_delivered, now.moment);
  for (int i = 0; i < n; i++) {
    InFlightEvent *event = (InFlightEvent *)locks[i].owner;
    if (event->record_after > now.moment)
      continue;
    if (locks[i].result == ROW_GONE) {
      forget_deleted_row(event);
      continue;
    }
    in_flight().recorded(event);
    add(sink_of(event)->common.retention_ms > 0 && day_of(now) == DAY_THERE ? &kept : &sent, event, locks[i].ctid);
  }
  if (sent.n > 0) {
    Datum values[] = {tid_array(sent.tids, sent.n)};
    statement_write(&delete_sent, values, NULL, NULL);
  }
  if (kept.n > 0) {
    Datum values[] = {tid_array(kept.tids, kept.n), TimestampTzGetDatum(now.wall)};
    statement_write(&keep_sent, values, NULL, NULL);
  }
}

void record_ended(Now now) {
  Assert(server_is_worker && IsTransactionState());
  int max = Min(in_flight().ended(), record_limit);

  n_tried = 0;
  SPI_connect();
  RowLock *locks = (RowLock *)palloc(sizeof(RowLock) * Max(max, 1));
  int n = choose_ended(locks, max, now.moment);
  n_busy = 0;
  int failed = (int)(std::partition(locks, locks + n,
                                    [](const RowLock &lock) {
                                      return ((const InFlightEvent *)lock.owner)->outcome != Outcome::SENT;
                                    }) -
                     locks);
  record_failures(locks, failed, now);
  int done = failed + record_untouched(locks + failed, n - failed);
  record_sent(locks + done, n - done, now);
  SPI_finish();
}

/* ---- counters ---------------------------------------------------------------------------------------------- */

static void count_event(const InFlightEvent *event) {
  SinkStats *stats = sink_of(event)->stats;

  if (stats == NULL)
    return;
  if (event->outcome == Outcome::SENT) {
    stats->delivered++;
    if (event->late)
      stats->redriven_late++;
    latency_add(&stats->latency, event->ended_at - event->due_since);
    return;
  }
  if (event->outcome == Outcome::RETRY)
    stats->retried++;
  else if (event->outcome == Outcome::REJECTED)
    stats->failed++;
}

/* What the log calls it. */
static Decision decision_of(const InFlightEvent *event) {
  return event->state == EventState::GONE      ? EVENT_GONE
         : event->outcome == Outcome::SENT     ? EVENT_DELIVERED
         : event->outcome == Outcome::REJECTED ? EVENT_DEAD
                                               : EVENT_FAILED;
}

void record_committed(Now now) {
  Assert(!IsTransactionState());
  record_limit = Min(record_limit * 2, RECORD_MAX);
  std::span<WorkerSink *> sinks = worker_sinks_all();
  uint64 *before = (uint64 *)palloc0(sizeof(uint64) * Max(sinks.size(), 1));

  LWLockAcquire(shared_state()->lock, LW_EXCLUSIVE); /* several workers count for one sink */
  for (size_t i = 0; i < sinks.size(); i++)
    before[i] = sinks[i]->stats ? sinks[i]->stats->delivered : 0;
  for (InFlightEvent *event = in_flight().first_ended(); event; event = event->next)
    if (is_recorded(event)) {
      WorkerSink *given_to = worker_sink_of(event->given_to);
      if (given_to) /* not before: while the event is known, claims pass its row */
        sink_cursor_rewind(given_to, event->position);
      count_event(event);
      sink_of(event)->unrecorded--;
    }
  for (size_t i = 0; i < sinks.size(); i++) {
    if (sinks[i]->stats == NULL)
      continue;
    if (sinks[i]->stats->delivered != before[i])
      worker_stops_succeeded(sinks[i]->stats);
    shared_sink_rate(sinks[i]->stats, sinks[i]->stats->delivered - before[i], now.moment);
  }
  LWLockRelease(shared_state()->lock);
  for (InFlightEvent *event = in_flight().first_ended(); event; event = event->next) {
    if (is_recorded(event))
      decision_log(decision_of(event), event->position, sink_of(event)->name,
                   event->outcome == Outcome::DEFERRED ? "no attempt is spent" : NULL, 0);
    if (is_recorded(event) && event->error) {
      if (sink_of(event)->stats)
        shared_sink_error(sink_of(event)->stats, event->error, now.wall);
      if (event->state != EventState::GONE)
        sink_log_count_failed(event);
    }
  }
}

bool record_take_day_missing(void) {
  bool missing = day_missing;

  day_missing = false;
  return missing;
}
