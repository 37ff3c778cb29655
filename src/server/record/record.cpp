#include "server/record/record.h"

#include "server/base/is_worker.h"
#include "server/event/status_sql.h"
#include "server/inflight/blocking.h"
#include "server/inflight/dead_letters.h"
#include "server/inflight/decision_log.h"
#include "server/inflight/flights.h"
#include "server/inflight/sink_log.h"
#include "server/record/overtaken.h"
#include "server/sinks/sink_place.h"
#include "server/sinks/worker_sinks.h"
#include "server/sinks/worker_stops.h"
#include "server/storage/row_lock.h"
#include "server/storage/sql.h"
#include "server/storage/untouched.h"

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
static Flight *tried = NULL; /* the first of them */

static Statement delete_sent = {"DELETE FROM outbox.events_pending WHERE ctid = ANY ($1)", 1, {TIDARRAYOID}, NULL};
static Statement keep_sent = {"WITH gone AS (DELETE FROM outbox.events_pending WHERE ctid = ANY ($1) RETURNING *) "
                              "INSERT INTO outbox.events (" MOVED_COLUMNS
                              ", overtaken_by, attempts, last_error, last_attempt_at, status, sent_at) "
                              "SELECT " MOVED_COLUMNS
                              ", overtaken_by, attempts, last_error, last_attempt_at, 'SENT', $2 FROM gone",
                              2,
                              {TIDARRAYOID, TIMESTAMPTZOID},
                              NULL};
static Statement bury = {
    "WITH gone AS (DELETE FROM outbox.events_pending WHERE ctid = ANY ($1) RETURNING *) "
    "INSERT INTO outbox.events (" MOVED_COLUMNS ", overtaken_by, attempts, last_error, last_attempt_at, status) "
    "SELECT " MOVED_COLUMNS ", overtaken_by, " ONE_MORE_ATTEMPT ", f.error, f.ended, 'FAILED' FROM gone "
    "JOIN unnest($2, $3, $4) AS f (at, error, ended) ON f.at = position",
    4,
    {TIDARRAYOID, INT8ARRAYOID, TEXTARRAYOID, TIMESTAMPTZARRAYOID},
    NULL};
/* With the present name of a renamed sink, by which it is found when it is due. */
static Statement put_back = {
    "UPDATE outbox.events_pending AS e SET attempts = CASE WHEN f.spent > 0 THEN " ONE_MORE_ATTEMPT
    " ELSE greatest(attempts, 1) END, last_error = f.error, "
    "last_attempt_at = f.ended, "
    "available_at = f.next, held_by = nullif(f.held_by, 0), "
    "redrive_late = nullif(redrive_late, false), sink = CASE WHEN e.sink = f.sink OR EXISTS "
    "(SELECT FROM outbox.events_pending AS o WHERE o.id = e.id AND o.sink = f.sink) THEN e.sink ELSE f.sink END "
    "FROM unnest($1, $2, $3, $4, $5, $6, $7) AS f (place, error, ended, next, held_by, sink, spent) "
    "WHERE e.ctid = f.place",
    7,
    {TIDARRAYOID, TEXTARRAYOID, TIMESTAMPTZARRAYOID, TIMESTAMPTZARRAYOID, INT8ARRAYOID, TEXTARRAYOID, INT8ARRAYOID},
    NULL};

/* One kind of recording in the running transaction. */
typedef struct Batch {
  ItemPointerData *tids;
  Flight **flights;
  int n;
} Batch;

static Batch batch_of(int max) {
  Batch batch = {(ItemPointerData *)palloc(sizeof(ItemPointerData) * max), (Flight **)palloc(sizeof(Flight *) * max),
                 0};

  return batch;
}

static void add(Batch *batch, Flight *flight, ItemPointerData ctid) {
  batch->tids[batch->n] = ctid;
  batch->flights[batch->n++] = flight;
}

static Datum errors_of(const Batch *batch) {
  Datum *values = (Datum *)palloc(sizeof(Datum) * Max(batch->n, 1));

  for (int i = 0; i < batch->n; i++)
    values[i] = CStringGetTextDatum(batch->flights[i]->error ? batch->flights[i]->error : "");
  return text_array(values, batch->n);
}

static Datum times_array(Datum *times, int n) {
  return PointerGetDatum(construct_array(times, n, TIMESTAMPTZOID, 8, FLOAT8PASSBYVAL, TYPALIGN_DOUBLE));
}

static Datum ends_of(const Batch *batch) {
  Datum *values = (Datum *)palloc(sizeof(Datum) * Max(batch->n, 1));

  for (int i = 0; i < batch->n; i++)
    values[i] = TimestampTzGetDatum(batch->flights[i]->ended_at);
  return times_array(values, batch->n);
}

static void record_dead(const Batch *batch) {
  int64 *positions = (int64 *)palloc(sizeof(int64) * Max(batch->n, 1));

  for (int i = 0; i < batch->n; i++) {
    const Flight *flight = batch->flights[i];
    positions[i] = flight->position;
    dead_letters_note(flight->key_hash);
    if (flight->sink->common.hold) /* its sink may hold only since it ended */
      key_block(flight->sink->oid, flight->key_hash, flight->position);
    else if (flight->suspect) /* its key waited for the verdict */
      blocked_keys().release(flight->sink->oid, flight->key_hash, flight->position);
  }
  Datum values[] = {tid_array(batch->tids, batch->n), int8_array(positions, batch->n), errors_of(batch),
                    ends_of(batch)};
  statement_write(&bury, values, NULL, NULL);
}

static void record_retries(const Batch *batch, Now now) {
  Datum *times = (Datum *)palloc(sizeof(Datum) * Max(batch->n, 1));
  int64 *holders = (int64 *)palloc(sizeof(int64) * Max(batch->n, 1));
  int64 *spent = (int64 *)palloc(sizeof(int64) * Max(batch->n, 1));
  Datum *names = (Datum *)palloc(sizeof(Datum) * Max(batch->n, 1));

  for (int i = 0; i < batch->n; i++) {
    Flight *flight = batch->flights[i];
    WorkerSink *sink = flight->sink;
    int64 delay = flight->retry_after_ms >= 0
                      ? flight->retry_after_ms
                      : ob_retry_delay_ms(sink->common.retry, flight->attempts + 1, flight->slow_retry,
                                          pg_prng_uint64(&pg_global_prng_state));
    /* Not in this very round, in which its flight still stands. */
    TimestampTz next =
        Max(TimestampTzPlusMilliseconds(flight->ended_at, delay), TimestampTzPlusMilliseconds(now.wall, 1));
    times[i] = TimestampTzGetDatum(next);
    names[i] = CStringGetTextDatum(sink->name);
    sink->next_due = Min(sink->next_due, next);
    if (next <= sink->due_after) /* the clock went back */
      sink->due_after = next - 1;
    /* Behind an older failing event of its key it waits like any other. */
    const BlockedKey *key = blocked_keys().find(sink->oid, flight->key_hash);
    spent[i] = flight->outcome == OB_RETRY; /* a wait is no attempt, but makes the row the head of its key */
    holders[i] = key && key->state == KeyState::BLOCKED && key->blocker != flight->position ? key->group : 0;
  }
  Datum values[] = {tid_array(batch->tids, batch->n),
                    errors_of(batch),
                    ends_of(batch),
                    times_array(times, batch->n),
                    int8_array(holders, batch->n),
                    text_array(names, batch->n),
                    int8_array(spent, batch->n)};
  statement_write(&put_back, values, NULL, NULL);
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
    ereport(WARNING, (errmsg("outbox deletes delivered events although they should be kept"),
                      errdetail("There is no partition outbox.%s.", name), errhint("SELECT outbox.maintain();")));
  }
  return DAY_MISSING;
}

/* A person may have given the event to another sink while it was on its way: then that one has it still to come. */
static bool is_for_its_sink(TupleTableSlot *row, TupleDesc desc, const RowLock *lock) {
  static AttrNumber column = InvalidAttrNumber;
  Flight *flight = (Flight *)lock->owner;
  bool is_null;

  Datum name = slot_getattr(row, column_number(desc, "sink", &column), &is_null);
  text *now = is_null ? NULL : DatumGetTextPP(name);
  WorkerSink *sink = now ? worker_sink_find(VARDATA_ANY(now), VARSIZE_ANY_EXHDR(now)) : NULL;
  if (sink && sink != flight->sink)
    flight->given_to = sink->oid;
  return sink == flight->sink;
}

static bool is_failing_for_its_sink(TupleTableSlot *row, TupleDesc desc, const RowLock *lock) {
  sink_log_see_failing((const Flight *)lock->owner, row, desc);
  return is_for_its_sink(row, desc, lock);
}

/* Those whose time has come. One that failed before goes alone, in its turn. */
static int choose_ended(RowLock *locks, int max, Moment now) {
  static bool alone = false;
  Flight *troubled = NULL;
  int n = 0;

  n_troubled = 0;
  for (Flight *flight = flights_first_ended(); flight; flight = flight->next) {
    bool due = flight->record_after <= now;
    if (flight->record_failures > 0) {
      n_troubled++;
      troubled = due ? flight : troubled;
    } else if (due && n < max) {
      locks[n++] = {flight->position, flight->ctid, ROW_GONE, flight, flight->xmin, flight->file};
    }
  }
  alone = troubled && (n == 0 || !alone);
  if (alone) {
    n = 0;
    locks[n++] = {troubled->position, troubled->ctid, ROW_GONE, troubled, troubled->xmin, troubled->file};
  }
  n_tried = n;
  tried = n > 0 ? (Flight *)locks[0].owner : NULL;
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
  if (tried->sink->stats)
    shared_sink_error(tried->sink->stats, error, now.wall);
  tried->record_after = moment_after(now.moment, TROUBLE_PAUSE_MS << Min(tried->record_failures, 6));
  return tried->record_failures++ == 0 && n_troubled++ == 0; /* if there are others, it may be all of them */
}

/* Very many of them are tried less often. */
static void try_later(Flight *flight, Moment now) {
  flight->record_after = moment_after(now, ROW_BUSY_PAUSE_MS + n_busy++ / 10);
}

/* A person has deleted or moved the row: nothing is left to say, and its key waits for nobody. */
static void let_go(Flight *flight) {
  flight->gone = true;
  blocked_keys().release(flight->sink->oid, flight->key_hash, flight->position);
}

/* What did not arrive. */
static void record_failures(RowLock *locks, int n, Now now) {
  Batch dead = batch_of(Max(n, 1)), retried = batch_of(Max(n, 1));

  row_lock(locks, n, is_failing_for_its_sink);
  for (int i = 0; i < n; i++) {
    Flight *flight = (Flight *)locks[i].owner;
    if (locks[i].result == ROW_BUSY) {
      try_later(flight, now.moment);
      continue;
    }
    flight->recorded = true;
    if (locks[i].result == ROW_GONE)
      let_go(flight);
    else
      add(flight->outcome == OB_REJECTED ? &dead : &retried, flight, locks[i].ctid);
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
                                     const Flight *flight = (const Flight *)lock.owner;
                                     return flight->sink->common.retention_ms == 0 && !overtaken_possible(flight);
                                   }) -
                    locks);
  int deleted = untouched_delete(locks, plain);

  for (int i = 0; i < deleted; i++)
    ((Flight *)locks[i].owner)->recorded = true;
  return deleted;
}

/* What was delivered; earlier ones of its key that were not must have been written down. */
static void record_sent(RowLock *locks, int n, Now now) {
  Batch sent = batch_of(Max(n, 1)), kept = batch_of(Max(n, 1));
  Flight **delivered = (Flight **)palloc(sizeof(Flight *) * Max(n, 1));
  int n_delivered = 0;

  row_lock(locks, n, is_for_its_sink);
  for (int i = 0; i < n; i++) {
    Flight *flight = (Flight *)locks[i].owner;
    if (locks[i].result == ROW_BUSY || (flight->sink->common.retention_ms > 0 && day_of(now) == DAY_EXPECTED))
      try_later(flight, now.moment);
    else
      delivered[n_delivered++] = flight;
  }
  overtaken_mark(delivered, n_delivered, now.moment);
  for (int i = 0; i < n; i++) {
    Flight *flight = (Flight *)locks[i].owner;
    if (flight->record_after > now.moment)
      continue;
    flight->recorded = true;
    if (locks[i].result == ROW_GONE)
      let_go(flight);
    else
      add(flight->sink->common.retention_ms > 0 && day_of(now) == DAY_THERE ? &kept : &sent, flight, locks[i].ctid);
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
  int max = Min(flights_ended(), record_limit);

  n_tried = 0;
  SPI_connect();
  RowLock *locks = (RowLock *)palloc(sizeof(RowLock) * Max(max, 1));
  int n = choose_ended(locks, max, now.moment);
  n_busy = 0;
  int failed =
      (int)(std::partition(locks, locks + n,
                           [](const RowLock &lock) { return ((const Flight *)lock.owner)->outcome != OB_SENT; }) -
            locks);
  record_failures(locks, failed, now);
  int done = failed + record_untouched(locks + failed, n - failed);
  record_sent(locks + done, n - done, now);
  SPI_finish();
}

/* ---- counters ---------------------------------------------------------------------------------------------- */

static void count_flight(const Flight *flight) {
  SinkStats *stats = flight->sink->stats;

  if (stats == NULL)
    return;
  if (flight->outcome == OB_SENT) {
    stats->delivered++;
    if (flight->late)
      stats->redriven_late++;
    latency_add(&stats->latency, flight->ended_at - flight->due_since);
    return;
  }
  if (flight->outcome == OB_RETRY)
    stats->retried++;
  else if (flight->outcome == OB_REJECTED)
    stats->failed++;
}

/* What the log calls it. */
static Decision decision_of(const Flight *flight) {
  return flight->gone                     ? EVENT_GONE
         : flight->outcome == OB_SENT     ? EVENT_DELIVERED
         : flight->outcome == OB_REJECTED ? EVENT_DEAD
                                          : EVENT_FAILED;
}

void record_committed(Now now) {
  Assert(!IsTransactionState());
  int n;
  record_limit = Min(record_limit * 2, RECORD_MAX);
  WorkerSink **sinks = worker_sinks_all(&n);
  uint64 *before = (uint64 *)palloc0(sizeof(uint64) * Max(n, 1));

  LWLockAcquire(shared_state()->lock, LW_EXCLUSIVE); /* several workers count for one sink */
  for (int i = 0; i < n; i++)
    before[i] = sinks[i]->stats ? sinks[i]->stats->delivered : 0;
  for (Flight *flight = flights_first_ended(); flight; flight = flight->next)
    if (flight->recorded) {
      WorkerSink *given_to = worker_sink_of(flight->given_to);
      if (given_to) /* not before: while the flight is known, claims pass its row */
        worker_sink_rewind(given_to, flight->position);
      count_flight(flight);
      flight->sink->unrecorded--;
    }
  for (int i = 0; i < n; i++) {
    if (sinks[i]->stats == NULL)
      continue;
    if (sinks[i]->stats->delivered != before[i])
      worker_stops_succeeded(sinks[i]->stats);
    shared_sink_rate(sinks[i]->stats, sinks[i]->stats->delivered - before[i], now.moment);
  }
  LWLockRelease(shared_state()->lock);
  for (Flight *flight = flights_first_ended(); flight; flight = flight->next) {
    if (flight->recorded)
      decision_log(decision_of(flight), flight->position, flight->sink->name,
                   flight->outcome == OB_WAIT ? "no attempt is spent" : NULL, 0);
    if (flight->recorded && flight->error) {
      if (flight->sink->stats)
        shared_sink_error(flight->sink->stats, flight->error, now.wall);
      if (!flight->gone)
        sink_log_count_failed(flight);
    }
  }
}

bool record_take_day_missing(void) {
  bool missing = day_missing;

  day_missing = false;
  return missing;
}
