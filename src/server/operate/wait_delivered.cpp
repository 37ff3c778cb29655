/*
 * wait_delivered.cpp: CALL outbox.wait_delivered(). It reads the event, commits, and sleeps without a snapshot or
 * lock. The sleep grows with the time that has passed, up to 1 s, so that 1,000 sessions that wait through an outage
 * cost 1,000 short queries per second. The worker need not wake the sessions.
 */
#include "server/base/server.h"

extern "C" {
#include "access/xact.h"
#include "catalog/pg_type.h"
#include "executor/spi.h"
#include "miscadmin.h"
#include "nodes/parsenodes.h"
#include "storage/latch.h"
#include "utils/builtins.h"
#include "utils/uuid.h"
#include "utils/wait_event.h"
#include "utils/xid8.h"
}

#include "server/base/clock.h"
#include "server/base/error_text.h"
#include "server/base/sql_function.h"
#include "server/enqueue/session_events.h"
#include "server/storage/owner_sql.h"

enum { ERRCODE_EVENT_FAILED = MAKE_SQLSTATE('O', 'B', '0', '0', '1') };
enum { ERRCODE_EVENT_LATE = MAKE_SQLSTATE('O', 'B', '0', '0', '2') };
enum { ERRCODE_EVENT_UNKNOWN = MAKE_SQLSTATE('O', 'B', '0', '0', '3') };

static const long SHORTEST_MS = 2;
static const long LONGEST_MS = 1000;

enum { W_FAILED, W_SINK, W_ATTEMPTS, W_AVAILABLE_AT, W_LAST_ERROR, W_XACT, W_BLOCKED };

/* Dead letters first, then the events with most attempts, then those that wait after a failure. */
static Statement select_rows = make_statement<UUIDOID>(
    "SELECT true AS failed, f.sink, f.attempts, f.available_at, f.last_error, f.xact, false AS blocked "
    "FROM outbox.events_failed AS f WHERE f.id OPERATOR(pg_catalog.=) $1 "
    "UNION ALL SELECT false, p.sink, p.attempts, p.available_at, p.last_error, p.xact, p.blocked_by IS NOT NULL "
    "FROM outbox.events_pending AS p WHERE p.id OPERATOR(pg_catalog.=) $1 "
    "ORDER BY failed DESC, attempts DESC, last_error");

/* No index has the id: it is read only for an event that another session enqueued. */
static Statement select_sent =
    make_statement<UUIDOID>("SELECT FROM outbox.events_sent AS s WHERE s.id OPERATOR(pg_catalog.=) $1 LIMIT 1");

typedef struct Wait {
  pg_uuid_t id;
  Interval timeout;
  bool seen; /* a row of the event was in the table */
  Moment began, until;
} Wait;

static const char *id_text(const Wait *wait) {
  return DatumGetCString(DirectFunctionCall1(uuid_out, UUIDPGetDatum(&wait->id)));
}

static Datum column(int number, bool *isnull) {
  return SPI_getbinval(SPI_tuptable->vals[0], SPI_tuptable->tupdesc, number + 1, isnull);
}

static const char *text_column(int number) {
  return SPI_getvalue(SPI_tuptable->vals[0], SPI_tuptable->tupdesc, number + 1);
}

/* Reads the event's first row that is not delivered; false when all are delivered. Between owner_enter() and
 * owner_leave(). */
static bool read_first_row(const Wait *wait) {
  Datum values[] = {UUIDPGetDatum(&wait->id)};

  return owner_execute(&select_rows, values, NULL) > 0;
}

static bool is_dead(void) {
  bool isnull;
  return DatumGetBool(column(W_FAILED, &isnull));
}

/* Did this transaction write the row? */
static bool is_own(void) {
  bool isnull;
  FullTransactionId here = GetTopFullTransactionIdIfAny();
  FullTransactionId writer = DatumGetFullTransactionId(column(W_XACT, &isnull));

  return FullTransactionIdIsValid(here) && FullTransactionIdEquals(here, writer);
}

static const char *failed_attempts(void) {
  const char *n = text_column(W_ATTEMPTS);

  return psprintf("%s failed %s", n, strcmp(n, "1") == 0 ? "attempt" : "attempts");
}

static void fail_dead(const Wait *wait) {
  ereport(ERROR,
          (errcode(ERRCODE_EVENT_FAILED), errmsg("event %s could not be delivered", id_text(wait)),
           errdetail("It is a dead letter of the sink \"%s\", after %s: %s", text_column(W_SINK), failed_attempts(),
                     text_column(W_LAST_ERROR) ? shown_error(text_column(W_LAST_ERROR)) : "no error known"),
           errhint("When the cause is gone: SELECT outbox.redrive('%s');", id_text(wait))));
}

static const char *reason(void) {
  const char *sink = text_column(W_SINK), *time = text_column(W_AVAILABLE_AT), *error = text_column(W_LAST_ERROR);
  bool isnull;

  if (sink == NULL)
    return "It is pending, because no sink takes it.";
  if (error)
    return psprintf("The sink \"%s\" has not taken it yet, after %s: %s", sink, failed_attempts(),
                    shown_error(error));
  if (DatumGetBool(column(W_BLOCKED, &isnull)))
    return psprintf("At the sink \"%s\" it waits for an earlier event of its key that has failed.", sink);
  if (time && DatumGetTimestampTz(column(W_AVAILABLE_AT, &isnull)) > GetCurrentTimestamp())
    return psprintf("It is scheduled for %s.", time);
  return psprintf("It is pending for the sink \"%s\".", sink);
}

/* A row that is not there was delivered only if there is a proof; `known` is of before the look at the table, because
 * a transaction may commit meanwhile. True if so; false = wait on. Between owner_enter()
 * and owner_leave(). */
static bool judge_missing(const Wait *wait, SessionEvent known) {
  Datum values[] = {UUIDPGetDatum(&wait->id)};

  if (known == SESSION_EVENT_OPEN)
    return false;
  if (known == SESSION_EVENT_COMMITTED ||
      (known == SESSION_EVENT_UNKNOWN && owner_execute(&select_sent, values, NULL) > 0))
    return true;
  bool rolled_back = known == SESSION_EVENT_ROLLED_BACK;
  ereport(ERROR, (errcode(ERRCODE_EVENT_UNKNOWN), errmsg("there is no event %s", id_text(wait)),
                  rolled_back
                      ? errdetail("The transaction that enqueued it was rolled back.")
                      : errdetail("It is not among the last 1024 events that this session enqueued. It was delivered "
                                  "and not kept, deleted, rolled back or never enqueued."),
                  rolled_back ? 0
                              : errhint("Wait in the session that enqueued the event, or keep delivered events: "
                                        "outbox.retention.")));
  pg_unreachable();
}

static void fail_late(const Wait *wait, bool exists) {
  ereport(ERROR, (errcode(ERRCODE_EVENT_LATE),
                  errmsg("event %s was not delivered within %s", id_text(wait),
                         DatumGetCString(DirectFunctionCall1(interval_out, IntervalPGetDatum(&wait->timeout)))),
                  errdetail("%s", exists ? reason() : "Its transaction has not ended."),
                  errhint("To find the cause: SELECT * FROM outbox.doctor();")));
}

/* Reads the event once. Raises an error if it is a dead letter or the time is up; false = wait on. */
static bool is_delivered(Wait *wait, bool first, Moment now) {
  SessionEvent known = wait->seen ? SESSION_EVENT_COMMITTED : session_events_find(&wait->id);
  OwnerScope scope = owner_enter();
  bool exists = read_first_row(wait);

  if (exists && first && is_own())
    ereport(ERROR, (errcode(ERRCODE_ACTIVE_SQL_TRANSACTION), errmsg("event %s is not committed yet", id_text(wait)),
                    errdetail("It was enqueued in this transaction, and is delivered after its COMMIT."),
                    errhint("Wait after the COMMIT.")));
  if (exists && is_dead())
    fail_dead(wait);
  wait->seen |= exists;
  bool delivered = !exists && judge_missing(wait, known);
  if (!delivered && now >= wait->until)
    fail_late(wait, exists);
  owner_leave(scope);
  return delivered;
}

/* Without this check the COMMIT would raise only "invalid transaction termination". */
static void refuse_block(const Wait *wait) {
  OwnerScope scope = owner_enter();
  bool own = read_first_row(wait) && is_own();

  owner_leave(scope);
  ereport(ERROR,
          (errcode(ERRCODE_ACTIVE_SQL_TRANSACTION),
           errmsg("outbox.wait_delivered() cannot run inside a transaction block or a function"),
           own ? errdetail("The event was enqueued in this transaction, and is delivered after its COMMIT.")
               : errdetail("It would hold the transaction's snapshot and locks while it waits."),
           errhint("After the COMMIT, as a statement of its own: CALL outbox.wait_delivered('%s');", id_text(wait))));
}

static void sleep_ms(long ms) {
  (void)WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH, ms, PG_WAIT_EXTENSION);
  ResetLatch(MyLatch);
  CHECK_FOR_INTERRUPTS();
}

/* Adds days and months by the calendar. */
static Moment end_of(const Wait *wait) {
  const Now now = {wait->began, GetCurrentTimestamp()};
  Datum end =
      DirectFunctionCall2(timestamptz_pl_interval, TimestampTzGetDatum(now.wall), IntervalPGetDatum(&wait->timeout));

  return moment_of_wall(now, DatumGetTimestampTz(end));
}

SQL_FUNCTION(outbox_wait_delivered) {
  CallContext *call = fcinfo->context && IsA(fcinfo->context, CallContext) ? (CallContext *)fcinfo->context : NULL;
  Wait wait;

  if (PG_ARGISNULL(0) || PG_ARGISNULL(1))
    ereport(ERROR, (errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
                    errmsg("%s must not be null", PG_ARGISNULL(0) ? "the id of an event" : "the timeout"),
                    errhint("The timeout may be left out, and is then 30 seconds.")));
  wait.id = *PG_GETARG_UUID_P(0);
  wait.timeout = *PG_GETARG_INTERVAL_P(1);
  wait.seen = false;
  if (call == NULL || call->atomic || IsSubTransaction())
    refuse_block(&wait);

  wait.began = moment_now();
  wait.until = end_of(&wait);
  SPI_connect_ext(SPI_OPT_NONATOMIC);
  Moment now = wait.began;
  while (!is_delivered(&wait, now == wait.began, now)) {
    SPI_commit(); /* releases the snapshot and the locks */
    long ms = Min(Max((long)((now.us - wait.began.us) / 1000 / 4), SHORTEST_MS), LONGEST_MS);
    sleep_ms(Min(ms, Max(milliseconds_until(now, wait.until), 1L)));
    now = moment_now();
  }
  SPI_finish();
  PG_RETURN_VOID();
}
