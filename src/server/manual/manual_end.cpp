/* manual_end.cpp: outbox.ack() and outbox.nack(): how what was claimed has ended, written down as a worker would. */
#include "server/manual/manual_end.h"

#include "server/base/is_worker.h"
#include "server/base/sql_function.h"
#include "server/event/status_sql.h"
#include "server/manual/manual_arguments.h"
#include "server/manual/manual_leases.h"

extern "C" {
#include "access/xlog.h"
#include "catalog/namespace.h"
#include "catalog/pg_type.h"
#include "common/pg_prng.h"
#include "tcop/utility.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/datetime.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/timestamp.h"
#include "utils/uuid.h"
}

/* ---- what an acknowledged event has overtaken --------------------------------------------------------------- */

#define KEYS "unnest($2, $3) AS k (hash, bound)"
#define OVERTAKER(row)                                                                                               \
  "(SELECT pg_catalog.min(a.position) FROM unnest($4, $5) AS a (hash, position) WHERE a.hash = k.hash "              \
  "AND a.position > " row ".position)"
#define EARLIER(row)                                                                                                 \
  row ".sink = ANY ($1) AND pg_catalog.hashtextextended(" row ".partition_key, 0) = k.hash AND " row                 \
      ".position < k.bound AND " row ".overtaken_by IS NULL"
#define TROUBLED "(p.attempts > 0 OR p.redrive_late IS NOT NULL)"
/* Those that this claim still has are not too late: they are about to be handled. */
#define TOO_LATE "p.redrive_late = false AND p.position <> ALL ($6)"

static Statement find_earlier = {
    "SELECT FROM " KEYS " CROSS JOIN LATERAL (SELECT FROM outbox.events_failed AS f WHERE " EARLIER(
        "f") " UNION ALL SELECT FROM outbox.events_pending AS p WHERE " EARLIER("p") " AND " TROUBLED
                                                                                     " LIMIT 1) AS e LIMIT 1",
    3,
    {TEXTARRAYOID, INT8ARRAYOID, INT8ARRAYOID},
    NULL};
static Statement mark_failed = {
    "UPDATE outbox.events_failed AS f SET overtaken_by = " OVERTAKER("f") " FROM " KEYS " WHERE " EARLIER("f"),
    5,
    {TEXTARRAYOID, INT8ARRAYOID, INT8ARRAYOID, INT8ARRAYOID, INT8ARRAYOID},
    NULL};
static Statement mark_pending = {
    "UPDATE outbox.events_pending AS p SET overtaken_by = " OVERTAKER("p") " FROM " KEYS " WHERE " EARLIER(
        "p") " AND " TROUBLED " AND NOT coalesce(" TOO_LATE ", false)",
    6,
    {TEXTARRAYOID, INT8ARRAYOID, INT8ARRAYOID, INT8ARRAYOID, INT8ARRAYOID, INT8ARRAYOID},
    NULL};
static Statement bury_late = {
    "WITH late AS (SELECT p.position, " OVERTAKER(
        "p") " AS by FROM outbox.events_pending AS p, " KEYS
             " WHERE " EARLIER("p") " AND " TOO_LATE "), gone AS (DELETE FROM outbox.events_pending AS p USING late "
                                    "WHERE p.position = late.position RETURNING p.*) "
                                    "INSERT INTO outbox.events (" MOVED_COLUMNS
                                    ", overtaken_by, attempts, last_error, last_attempt_at, status) "
                                    "SELECT " MOVED_COLUMNS ", late.by, attempts, " REDRIVEN_TOO_LATE(
                                        "late.by") ", last_attempt_at, 'FAILED' "
                                                   "FROM gone JOIN late USING (position)",
    6,
    {TEXTARRAYOID, INT8ARRAYOID, INT8ARRAYOID, INT8ARRAYOID, INT8ARRAYOID, INT8ARRAYOID},
    NULL};

/* Almost always there is nothing. Dead letters first: a redrive of one that is not yet committed is waited for, and
 * then it stands among the pending ones. */
static void mark_overtaken(const ManualSink *sink, const Leases *leases) {
  int n_keys = 0, n_acked = 0, n_rest = 0, all = 0;

  for (int i = 0; i < leases->n; i++)
    all += leases->list[i].n;
  int64 *hashes = (int64 *)palloc(sizeof(int64) * leases->n), *bounds = (int64 *)palloc(sizeof(int64) * leases->n);
  int64 *acked_hashes = (int64 *)palloc(sizeof(int64) * all), *acked = (int64 *)palloc(sizeof(int64) * all);
  int64 *rest = (int64 *)palloc(sizeof(int64) * all);
  for (int i = 0; i < leases->n; i++) {
    Lease *lease = &leases->list[i];
    int64 last = 0;
    for (int j = 0; j < lease->n && lease->key_hash != 0; j++) {
      if (!lease->ended[j]) {
        rest[n_rest++] = lease->positions[j];
        continue;
      }
      acked_hashes[n_acked] = lease->key_hash;
      acked[n_acked++] = last = lease->positions[j];
    }
    if (last == 0)
      continue;
    hashes[n_keys] = lease->key_hash;
    bounds[n_keys++] = last;
    if (lease->overtaken_by == 0 || lease->overtaken_by < last)
      lease->overtaken_by = last; /* should one that it still has fail */
  }
  if (n_keys == 0)
    return;
  Datum values[] = {sink->names,
                    int8_array(hashes, n_keys),
                    int8_array(bounds, n_keys),
                    int8_array(acked_hashes, n_acked),
                    int8_array(acked, n_acked),
                    int8_array(rest, n_rest)};
  if (statement_write(&find_earlier, values, NULL, NULL) == 0)
    return;
  statement_write(&mark_failed, values, NULL, NULL);
  statement_write(&mark_pending, values, NULL, NULL);
  statement_write(&bury_late, values, NULL, NULL);
}

/* ---- outbox.ack() ------------------------------------------------------------------------------------------ */

#define OF_ACKED "position = ANY ($1) AND sink = ANY ($2)"
#define ACKED                                                                                                        \
  "position, created_at, available_at, attempts, coalesce(redrive_late AND overtaken_by IS NOT NULL, false)"

static Statement delete_acked = {
    "DELETE FROM outbox.events_pending WHERE " OF_ACKED " RETURNING " ACKED, 2, {INT8ARRAYOID, TEXTARRAYOID}, NULL};
static Statement keep_acked = {
    "WITH gone AS (DELETE FROM outbox.events_pending WHERE " OF_ACKED " RETURNING *), "
    "kept AS (INSERT INTO outbox.events (" MOVED_COLUMNS
    ", overtaken_by, attempts, last_error, last_attempt_at, status, sent_at) SELECT " MOVED_COLUMNS
    ", overtaken_by, attempts, last_error, last_attempt_at, 'SENT', $3 FROM gone) "
    "SELECT " ACKED " FROM gone",
    3,
    {INT8ARRAYOID, TEXTARRAYOID, TIMESTAMPTZOID},
    NULL};

typedef struct Acked {
  Oid server;
  TimestampTz now;
  ManualCounts counts;
} Acked;

static bool visit_acked(TupleTableSlot *slot, void *context) {
  Acked *acked = (Acked *)context;
  TimestampTz since = DatumGetTimestampTz(slot->tts_values[1]);

  if (!slot->tts_isnull[2] && DatumGetInt32(slot->tts_values[3]) == 0)
    since = Max(since, DatumGetTimestampTz(slot->tts_values[2]));
  manual_count_latency(acked->server, acked->now - since);
  acked->counts.delivered++;
  acked->counts.redriven_late += DatumGetBool(slot->tts_values[4]);
  return true;
}

/* Where no worker runs nobody else makes the day. Without one, better no audit trail than no acknowledgement. */
static bool day_is_there(TimestampTz now) {
  int year, month, mday;
  char name[NAMEDATALEN];

  j2date((int)(now / USECS_PER_DAY) + POSTGRES_EPOCH_JDATE, &year, &month, &mday);
  snprintf(name, sizeof(name), "events_sent_%04d%02d%02d", year, month, mday);
  if (OidIsValid(get_relname_relid(name, get_namespace_oid("outbox", false))))
    return true;
  if (SPI_execute("SELECT outbox.maintain_days(false)", false, 1) == SPI_OK_SELECT &&
      OidIsValid(get_relname_relid(name, get_namespace_oid("outbox", false))))
    return true;
  ereport(WARNING, (errmsg("outbox deletes acknowledged events although they should be kept"),
                    errdetail("There is no partition outbox.%s.", name), errhint("SELECT outbox.maintain();")));
  return false;
}

static int uuid_order(const void *a, const void *b) {
  return memcmp(DatumGetUUIDP(*(const Datum *)a), DatumGetUUIDP(*(const Datum *)b), UUID_LEN);
}

/* Which of the claim's events end; all without a list. */
static int choose(const Leases *leases, ArrayType *list, int64 *positions) {
  Datum *ids = NULL;
  int n_ids = 0, n = 0;

  if (list) {
    bool *nulls;
    deconstruct_array(list, UUIDOID, UUID_LEN, false, TYPALIGN_CHAR, &ids, &nulls, &n_ids);
    int given = 0;
    for (int i = 0; i < n_ids; i++)
      if (!nulls[i])
        ids[given++] = ids[i];
    n_ids = given;
    qsort(ids, n_ids, sizeof(Datum), uuid_order);
  }
  for (int i = 0; i < leases->n; i++)
    for (int j = 0; j < leases->list[i].n; j++) {
      Lease *lease = &leases->list[i];
      Datum id = UUIDPGetDatum(&lease->ids[j]);
      if (list && (n_ids == 0 || bsearch(&id, ids, n_ids, sizeof(Datum), uuid_order) == NULL))
        continue;
      lease->ended[j] = true;
      positions[n++] = lease->positions[j];
    }
  return n;
}

typedef struct Ending {
  const pg_uuid_t *token;
  ArrayType *ids;      /* ack: NULL = all */
  const pg_uuid_t *id; /* nack */
  const char *error;
  int64 retry_in_ms; /* -1 = the sink's own schedule */
  bool give_up;
  int64 position;
  bool unread; /* it was never given out: no attempt is spent */
  ManualSink sink;
  Leases leases;
  int64 n_acked;
  const char *status; /* NULL = the lease was lost */
} Ending;

static void ack_events(Ending *ending) {
  const ManualSink *sink = &ending->sink;
  int all = 0;

  for (int i = 0; i < ending->leases.n; i++)
    all += ending->leases.list[i].n;
  int64 *positions = (int64 *)palloc(sizeof(int64) * Max(all, 1));
  int n = choose(&ending->leases, ending->ids, positions);
  if (n == 0)
    return;
  Acked acked = {sink->server, GetCurrentTimestamp(), {0, 0, 0, 0}};
  Datum values[] = {int8_array(positions, n), sink->names, TimestampTzGetDatum(acked.now)};
  bool keep = sink->common.retention_ms > 0 && day_is_there(acked.now);
  statement_write(keep ? &keep_acked : &delete_acked, values, visit_acked, &acked);
  if (sink->common.ordered)
    mark_overtaken(sink, &ending->leases);
  leases_write(&ending->leases);
  manual_count(sink->server, &acked.counts);
  ending->n_acked = (int64)acked.counts.delivered;
}

/* ---- outbox.nack() ----------------------------------------------------------------------------------------- */

static Statement lock_event = {"SELECT " ONE_MORE_ATTEMPT " FROM outbox.events_pending WHERE " OF_ACKED " FOR UPDATE",
                               2,
                               {INT8ARRAYOID, TEXTARRAYOID},
                               NULL};
static Statement put_back = {
    "UPDATE outbox.events_pending AS e SET attempts = CASE WHEN $8 THEN " ONE_MORE_ATTEMPT
    " ELSE greatest(attempts, 1) END, last_error = $3, last_attempt_at = $4, "
    "available_at = $5, held_by = NULL, redrive_late = nullif(e.redrive_late, false), "
    "overtaken_by = coalesce(e.overtaken_by, nullif($6, 0)), "
    "sink = CASE WHEN EXISTS (SELECT FROM outbox.events_pending AS o WHERE o.id = e.id AND o.sink = $7) THEN e.sink "
    "ELSE $7 END WHERE e.position = ANY ($1) AND e.sink = ANY ($2)",
    8,
    {INT8ARRAYOID, TEXTARRAYOID, TEXTOID, TIMESTAMPTZOID, TIMESTAMPTZOID, INT8OID, TEXTOID, BOOLOID},
    NULL};
static Statement bury = {"WITH gone AS (DELETE FROM outbox.events_pending WHERE " OF_ACKED " RETURNING *) "
                         "INSERT INTO outbox.events (" MOVED_COLUMNS
                         ", overtaken_by, attempts, last_error, last_attempt_at, status) SELECT " MOVED_COLUMNS
                         ", coalesce(overtaken_by, nullif($5, 0)), " ONE_MORE_ATTEMPT ", $3, $4, 'FAILED' FROM gone",
                         5,
                         {INT8ARRAYOID, TEXTARRAYOID, TEXTOID, TIMESTAMPTZOID, INT8OID},
                         NULL};

static bool visit_attempt(TupleTableSlot *slot, void *attempt) {
  *(int *)attempt = DatumGetInt32(slot->tts_values[0]);
  return true;
}

/* As a worker gives back what was to follow a failing event: nothing of the key goes before it. */
static void end_later(Lease *lease, int64 position) {
  for (int i = 0; i < lease->n; i++)
    if (lease->positions[i] > position)
      lease->ended[i] = true;
}

static void refuse_event(Ending *ending, Lease *lease, int at) {
  const ManualSink *sink = &ending->sink;
  int64 position = lease->positions[at];
  int64 overtaken_by = lease->overtaken_by > position ? lease->overtaken_by : 0;
  TimestampTz now = GetCurrentTimestamp();
  ManualCounts counts = {0, 0, 0, 0};
  int attempt = 0;

  lease->ended[at] = true;
  Datum values[8] = {int8_array(&position, 1), sink->names};
  statement_write(&lock_event, values, visit_attempt, &attempt);
  if (attempt == 0) /* a person has deleted or moved it: its key waits for nobody */
    return;
  bool dead = !ending->unread && (ending->give_up || attempt >= sink->common.max_attempts);
  values[2] = CStringGetTextDatum(ending->error);
  values[3] = TimestampTzGetDatum(now);
  if (dead) {
    values[4] = Int64GetDatum(overtaken_by);
    statement_write(&bury, values, NULL, NULL);
    counts.failed = 1;
  } else {
    int64 delay = ending->retry_in_ms >= 0
                      ? ending->retry_in_ms
                      : ob_retry_delay_ms(sink->common.retry, attempt, false, pg_prng_uint64(&pg_global_prng_state));
    values[4] = TimestampTzGetDatum(TimestampTzPlusMilliseconds(now, delay));
    values[5] = Int64GetDatum(overtaken_by);
    values[6] = CStringGetTextDatum(sink->name);
    values[7] = BoolGetDatum(!ending->unread);
    statement_write(&put_back, values, NULL, NULL);
    counts.retried = 1;
  }
  if (lease->key_hash != 0 && (!dead || sink->common.hold))
    end_later(lease, position);
  manual_count(sink->server, &counts);
  manual_count_error(sink->server, ending->error);
  ending->status = dead ? "FAILED" : "PENDING";
}

static void nack_event(Ending *ending) {
  for (int i = 0; i < ending->leases.n; i++)
    for (int j = 0; j < ending->leases.list[i].n; j++) {
      Lease *lease = &ending->leases.list[i];
      if (ending->unread ? lease->positions[j] == ending->position
                         : memcmp(&lease->ids[j], ending->id, sizeof(pg_uuid_t)) == 0) {
        refuse_event(ending, lease, j);
        leases_write(&ending->leases);
        return;
      }
    }
}

/* ---- the functions ----------------------------------------------------------------------------------------- */

/* What it does to events is the server's doing, not a person's: it recalls nothing, and a dedup key stays. */
static void end_as_server(Ending *ending) {
  const bool was_worker = server_is_worker;

  server_is_worker = true;
  PG_TRY();
  {
    if (ending->id || ending->unread)
      nack_event(ending);
    else
      ack_events(ending);
  }
  PG_FINALLY();
  { server_is_worker = was_worker; }
  PG_END_TRY();
}

static void end(Ending *ending) {
  const Oid caller = GetUserId();
  OwnerScope scope = owner_enter();

  ending->leases = leases_of(ending->token);
  if (ending->leases.n > 0 && manual_sink_of(ending->leases.list[0].server, caller, &ending->sink)) {
    manual_sink_read_names(&ending->sink);
    end_as_server(ending);
  }
  owner_leave(scope);
}

void manual_put_back(const ManualSink *sink, const pg_uuid_t *token, int64 position, const char *error,
                     int64 retry_in_ms) {
  Ending ending;

  memset((void *)&ending, 0, sizeof(ending));
  ending.token = token;
  ending.position = position;
  ending.unread = true;
  ending.error = error;
  ending.retry_in_ms = retry_in_ms;
  ending.sink = *sink;
  ending.leases = leases_of(token);
  end_as_server(&ending);
}

SQL_FUNCTION(outbox_ack) {
  static const char *const names[] = {"token"};
  Ending ending;

  manual_check_call(fcinfo, "outbox.ack()", 1, names,
                    "SELECT outbox.ack(token, ARRAY[id]); with the token that outbox.claim() returned.");
  memset((void *)&ending, 0, sizeof(ending));
  ending.token = PG_GETARG_UUID_P(0);
  ending.ids = PG_ARGISNULL(1) ? NULL : PG_GETARG_ARRAYTYPE_P(1);
  end(&ending);
  PG_RETURN_INT64(ending.n_acked);
}

SQL_FUNCTION(outbox_nack) {
  static const char *const names[] = {"token", "id", "error"};
  static const ManualInterval retry_in = {"retry_in", 0, 3660 * USECS_PER_DAY, "between 0 and ten years",
                                          "Leave it out for the sink's own schedule."};
  Ending ending;

  manual_check_call(fcinfo, "outbox.nack()", 3, names, "SELECT outbox.nack(token, id, 'what went wrong');");
  memset((void *)&ending, 0, sizeof(ending));
  ending.token = PG_GETARG_UUID_P(0);
  ending.id = PG_GETARG_UUID_P(1);
  ending.error = text_to_cstring(PG_GETARG_TEXT_PP(2));
  ending.retry_in_ms = -1;
  if (!PG_ARGISNULL(3))
    ending.retry_in_ms = manual_interval(PG_GETARG_INTERVAL_P(3), &retry_in) / 1000;
  ending.give_up = !PG_ARGISNULL(4) && PG_GETARG_BOOL(4);
  end(&ending);
  if (ending.status == NULL)
    PG_RETURN_NULL();
  PG_RETURN_TEXT_P(cstring_to_text(ending.status));
}
