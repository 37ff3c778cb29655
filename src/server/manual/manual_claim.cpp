/*
 * manual_claim.cpp: outbox.claim(): the next events of a sink, each key's in order, under a lease.
 * A claim reads from the sink's first row, since no cursor would be known to all sessions: 100,000 rows behind a
 * blocked key are read by each claim. Claim and ack of 100 rows reach 0.67 of a poller that keeps no order (6,700
 * and 10,000 events/s of one dispatcher in Python).
 */
#include "server/manual/manual_claim.h"

#include "server/base/grow.h"
#include "server/base/library_version.h"
#include "server/base/origin.h"
#include "server/base/sql_function.h"
#include "server/event/event_row.h"
#include "server/event/key_hash.h"
#include "server/manual/manual_arguments.h"
#include "server/manual/manual_keys.h"
#include "server/manual/manual_read.h"
#include "server/storage/row_lock.h"

extern "C" {
#include "access/xlog.h"
#include "catalog/pg_type.h"
#include "tcop/utility.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/fmgrprotos.h"
#include "utils/hsearch.h"
#include "utils/memutils.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"
#include "utils/tuplestore.h"
#include "utils/uuid.h"
}

static const int LIMIT_MAX = 10000;
static const ManualInterval LEASE = {"lease", 1000, 7 * USECS_PER_DAY, "between 1 ms and 7 days",
                                     "Take longer than it takes to handle what is claimed at once: '30 seconds'."};
/* Rows behind held keys are read and passed: so many beyond the wanted ones, and ever more until enough are free. */
static const int READ_MORE = 64, READ_MORE_MAX = 8192;
/* Somebody else took what this one was about to take: it looks again so often. */
static const int PASSES_MAX = 10;

/* ---- reading ----------------------------------------------------------------------------------------------- */

#define CANDIDATE "SELECT position, ctid, partition_key, id, available_at FROM outbox.events_pending WHERE "

/* Row comparisons and the order leave one index, also when it is planned on an empty table. */
static Statement read_ready = {CANDIDATE
                               "available_at IS NULL AND (sink COLLATE \"C\", position) > ($1, $2) "
                               "AND (sink COLLATE \"C\", position) < ($1, 9223372036854775807) AND origin = $3 "
                               "ORDER BY sink COLLATE \"C\", position LIMIT $4",
                               4,
                               {TEXTOID, INT8OID, INT8OID, INT8OID},
                               NULL};
static Statement read_due = {CANDIDATE "sink = $1 AND available_at IS NOT NULL AND blocked_by IS NULL "
                                       "AND (available_at, position) > ($2, $3) AND available_at <= $4 "
                                       "AND origin = $5 ORDER BY available_at, position LIMIT $6",
                             6,
                             {TEXTOID, TIMESTAMPTZOID, INT8OID, TIMESTAMPTZOID, INT8OID, INT8OID},
                             NULL};

static Candidate *add_candidate(Claim *claim, TupleTableSlot *slot) {
  make_room(claim->batch, claim->n_batch, claim->max_batch);
  Candidate *row = &claim->batch[claim->n_batch++];
  row->position = DatumGetInt64(slot->tts_values[0]);
  row->ctid = *(ItemPointer)DatumGetPointer(slot->tts_values[1]);
  row->id = *DatumGetUUIDP(slot->tts_values[3]);
  row->key_hash = 0;
  if (claim->sink->common.ordered && !slot->tts_isnull[2]) {
    text *key = DatumGetTextPP(slot->tts_values[2]);
    row->key_hash = key_hash_of(VARDATA_ANY(key), VARSIZE_ANY_EXHDR(key));
  }
  return row;
}

static bool visit_ready(TupleTableSlot *slot, void *context) {
  Claim *claim = (Claim *)context;

  claim->reading->after = add_candidate(claim, slot)->position;
  return true;
}

static bool visit_due(TupleTableSlot *slot, void *context) {
  Claim *claim = (Claim *)context;

  claim->reading->due_after_position = add_candidate(claim, slot)->position;
  claim->reading->due_after = DatumGetTimestampTz(slot->tts_values[4]);
  return true;
}

static int by_position(const void *a, const void *b) {
  int64 left = ((const Candidate *)a)->position, right = ((const Candidate *)b)->position;

  return left < right ? -1 : left > right;
}

/* The next rows, in order of position; false when there are none. */
static bool read_batch(Claim *claim, Reading *readings, int n) {
  int64 most = claim->limit - claim->n_leased - claim->n_taken + claim->read_more;

  claim->read_more = Min(claim->read_more * 2, READ_MORE_MAX);
  claim->n_batch = 0;
  for (int i = 0; i < n; i++) {
    Reading *reading = claim->reading = &readings[i];
    int before = claim->n_batch;
    if (!reading->no_more_due) {
      Datum values[] = {reading->name,
                        TimestampTzGetDatum(reading->due_after),
                        Int64GetDatum(reading->due_after_position),
                        TimestampTzGetDatum(claim->now),
                        Int64GetDatum(origin_here()),
                        Int64GetDatum(most)};
      statement_read(&read_due, values, claim->snapshot, visit_due, claim);
      reading->no_more_due = claim->n_batch - before < most;
    }
    before = claim->n_batch;
    if (!reading->no_more) {
      Datum values[] = {reading->name, Int64GetDatum(reading->after), Int64GetDatum(origin_here()),
                        Int64GetDatum(most)};
      statement_read(&read_ready, values, claim->snapshot, visit_ready, claim);
      reading->no_more = claim->n_batch - before < most;
    }
  }
  qsort(claim->batch, claim->n_batch, sizeof(Candidate), by_position);
  return claim->n_batch > 0;
}

/* ---- taking ------------------------------------------------------------------------------------------------ */

static bool is_free(const Claim *claim, const ClaimKey *key, int64 position) {
  if (key->closed || key->dead < position)
    return false;
  for (int i = 0; i < key->n_troubled; i++)
    if (key->troubled[i] < position && !key->taken[i])
      return false;
  return true;
}

static void note_taken(ClaimKey *key, int64 position) {
  for (int i = 0; i < key->n_troubled; i++)
    if (key->troubled[i] == position)
      key->taken[i] = true;
}

static int locks_by_position(const void *a, const void *b) {
  int64 left = ((const RowLock *)a)->position, right = ((const RowLock *)b)->position;

  return left < right ? -1 : left > right;
}

/* Locks what may be given out, a slice at a time, in order: a row that somebody holds closes its key. */
static void take_slice(Claim *claim, Candidate **slice, int n) {
  RowLock *locks = (RowLock *)palloc0(sizeof(RowLock) * n);

  for (int i = 0; i < n; i++)
    locks[i] = {slice[i]->position, slice[i]->ctid, ROW_GONE, slice[i]};
  row_lock(locks, n, NULL);
  qsort(locks, n, sizeof(RowLock), locks_by_position);
  for (int i = 0; i < n; i++) {
    const Candidate *row = (const Candidate *)locks[i].owner;
    bool found;
    ClaimKey *key = row->key_hash != 0 ? claim_key_of(claim, row->key_hash, &found) : NULL;
    if (key && key->closed)
      continue;
    if (locks[i].result == ROW_LOCKED) {
      claim->taken[claim->n_taken++] = *row;
      continue;
    }
    claim->look_again = claim->look_again || locks[i].result == ROW_GONE;
    if (key)
      key->closed = true;
  }
  pfree(locks);
}

static void take_batch(Claim *claim) {
  Candidate **slice = (Candidate **)palloc(sizeof(Candidate *) * Max(claim->n_batch, 1));

  for (int i = 0; i < claim->n_batch;) {
    int n = 0, room = claim->limit - claim->n_leased - claim->n_taken;
    for (; i < claim->n_batch && n < room; i++) {
      Candidate *row = &claim->batch[i];
      bool found;
      ClaimKey *key = row->key_hash != 0 ? claim_key_of(claim, row->key_hash, &found) : NULL;
      if (key && !is_free(claim, key, row->position))
        continue;
      if (key)
        note_taken(key, row->position);
      slice[n++] = row;
    }
    if (n == 0)
      break;
    take_slice(claim, slice, n);
  }
  pfree(slice);
}

/* ---- leasing ----------------------------------------------------------------------------------------------- */

/* Unique: whoever read the same rows before this one's commit, or a redriven one of the key since, gets nothing. */
static Statement lease = {
    "INSERT INTO outbox.leases (server, ordered, key_hash, single, token, lease_until, ids, positions) "
    "SELECT $1, $2, k.hash, k.single, $3, $4, pg_catalog.array_agg(k.id ORDER BY k.position), "
    "pg_catalog.array_agg(k.position ORDER BY k.position) FROM unnest($5, $6, $7, $8) "
    "AS k (hash, single, id, position) GROUP BY k.hash, k.single ORDER BY k.hash, k.single "
    "ON CONFLICT DO NOTHING RETURNING positions",
    8,
    {OIDOID, BOOLOID, UUIDOID, TIMESTAMPTZOID, INT8ARRAYOID, INT8ARRAYOID, UUIDARRAYOID, INT8ARRAYOID},
    NULL};

static bool visit_leased(TupleTableSlot *slot, void *context) {
  Claim *claim = (Claim *)context;
  Datum *positions;
  int n;

  deconstruct_array(DatumGetArrayTypeP(slot->tts_values[0]), INT8OID, 8, FLOAT8PASSBYVAL, TYPALIGN_DOUBLE, &positions,
                    NULL, &n);
  for (int i = 0; i < n; i++)
    claim->positions[claim->n_leased++] = DatumGetInt64(positions[i]);
  return true;
}

static void lease_taken(Claim *claim) {
  int64 *hashes = (int64 *)palloc(sizeof(int64) * claim->n_taken);
  int64 *singles = (int64 *)palloc(sizeof(int64) * claim->n_taken);
  int64 *positions = (int64 *)palloc(sizeof(int64) * claim->n_taken);
  Datum *ids = (Datum *)palloc(sizeof(Datum) * claim->n_taken);
  int before = claim->n_leased;

  for (int i = 0; i < claim->n_taken; i++) {
    const Candidate *row = &claim->taken[i];
    hashes[i] = (int64)row->key_hash;
    singles[i] = row->key_hash != 0 ? 0 : row->position;
    positions[i] = row->position;
    ids[i] = UUIDPGetDatum(&claim->taken[i].id);
  }
  Datum values[] = {ObjectIdGetDatum(claim->sink->server),
                    BoolGetDatum(claim->sink->common.ordered),
                    UUIDPGetDatum(&claim->token),
                    TimestampTzGetDatum(GetCurrentTimestamp() + claim->lease_us),
                    int8_array(hashes, claim->n_taken),
                    int8_array(singles, claim->n_taken),
                    PointerGetDatum(construct_array(ids, claim->n_taken, UUIDOID, UUID_LEN, false, TYPALIGN_CHAR)),
                    int8_array(positions, claim->n_taken)};
  statement_write(&lease, values, visit_leased, claim);
  claim->look_again = claim->look_again || claim->n_leased - before < claim->n_taken;
  claim->n_taken = 0;
}

/* While events are leased as those of another order, nothing more is given out: as a worker closes a sink that was
 * altered and opens it anew when nothing of its former self is in flight. */
static bool is_settled(const Claim *claim) {
  static Statement look = {
      "SELECT FROM outbox.leases AS l WHERE l.server = $1 AND l.ordered = $2 AND l.lease_until > $3 "
      "LIMIT 1",
      3,
      {OIDOID, BOOLOID, TIMESTAMPTZOID},
      NULL};
  Datum values[] = {ObjectIdGetDatum(claim->sink->server), BoolGetDatum(!claim->sink->common.ordered),
                    TimestampTzGetDatum(claim->now)};

  return statement_write(&look, values, NULL, NULL) == 0;
}

/* One snapshot for all that is read: a lower position that commits meanwhile must not be missed by a row that comes
 * after it. */
static void pass(Claim *claim) {
  Datum *names;
  int n;
  HASHCTL control;

  claim->now = GetCurrentTimestamp();
  claim->look_again = false;
  claim->read_more = READ_MORE;
  if (!is_settled(claim))
    return;
  control.keysize = sizeof(uint64);
  control.entrysize = sizeof(ClaimKey);
  control.hcxt = CurrentMemoryContext;
  claim->keys = hash_create("outbox keys of a claim", 256, &control, HASH_ELEM | HASH_BLOBS | HASH_CONTEXT);
  deconstruct_array(DatumGetArrayTypeP(claim->sink->names), TEXTOID, -1, false, TYPALIGN_INT, &names, NULL, &n);
  Reading *readings = (Reading *)palloc0(sizeof(Reading) * n);
  for (int i = 0; i < n; i++) {
    readings[i].name = names[i];
    readings[i].due_after = DT_NOBEGIN;
  }
  claim->snapshot = RegisterSnapshot(GetLatestSnapshot());
  while (claim->n_leased + claim->n_taken < claim->limit && read_batch(claim, readings, n)) {
    claim_ask(claim);
    take_batch(claim);
    CHECK_FOR_INTERRUPTS();
  }
  UnregisterSnapshot(claim->snapshot);
  hash_destroy(claim->keys);
  if (claim->n_taken > 0)
    lease_taken(claim);
}

/* ---- the function ------------------------------------------------------------------------------------------ */

enum { CLAIM_COLUMNS = 16 };

static bool is_paused(const ManualSink *sink) {
  static Statement look = {"SELECT FROM outbox.stopped_sinks AS s WHERE s.sink = $1", 1, {TEXTOID}, NULL};
  Datum values[] = {CStringGetTextDatum(sink->name)};

  return statement_write(&look, values, NULL, NULL) > 0;
}

static void check_arguments(FunctionCallInfo fcinfo) {
  static const char *const names[] = {"sink", "limit", "lease"};

  manual_check_call(fcinfo, "outbox.claim()", 3, names, "SELECT * FROM outbox.claim('sink', 100, '30 seconds');");
  if (PG_GETARG_INT32(1) < 1 || PG_GETARG_INT32(1) > LIMIT_MAX)
    ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE), errmsg("limit of a claim is out of range"),
                    errdetail("It is %d, and must be between 1 and %d.", PG_GETARG_INT32(1), LIMIT_MAX),
                    errhint("Claim as many as are handled well within the lease, and then again.")));
}

SQL_FUNCTION(outbox_claim) {
  ReturnSetInfo *result = rows_of(fcinfo, CLAIM_COLUMNS);
  ManualSink sink;
  Claim claim;

  check_arguments(fcinfo);
  memset((void *)&claim, 0, sizeof(claim));
  claim.limit = PG_GETARG_INT32(1);
  claim.lease_us = manual_interval(PG_GETARG_INTERVAL_P(2), &LEASE);
  claim.caller = GetUserId();
  manual_sink_require(text_to_cstring(PG_GETARG_TEXT_PP(0)), claim.caller, &sink);
  claim.sink = &sink;
  claim.token = *DatumGetUUIDP(DirectFunctionCall1(gen_random_uuid, (Datum)0));

  OwnerScope scope = owner_enter();
  if (is_paused(&sink)) {
    ereport(NOTICE, (errmsg("sink \"%s\" is paused: it gives out nothing", sink.name),
                     errhint("SELECT outbox.resume(%s);", quote_literal_cstr(sink.name))));
    owner_leave(scope);
    PG_RETURN_NULL();
  }
  manual_sink_read_names(&sink);
  claim.max_batch = claim.limit + READ_MORE;
  claim.batch = (Candidate *)palloc(sizeof(Candidate) * claim.max_batch);
  claim.taken = (Candidate *)palloc(sizeof(Candidate) * claim.limit);
  claim.positions = (int64 *)palloc(sizeof(int64) * claim.limit);
  for (int i = 0; i < PASSES_MAX; i++) {
    pass(&claim);
    if (!claim.look_again || claim.n_leased == claim.limit)
      break;
  }
  claim_hand_out(&claim, result);
  owner_leave(scope);
  PG_RETURN_NULL();
}
