/* manual_keys.cpp: what holds the keys of the rows that a claim has read: leases, failing events, dead letters. */
#include "server/manual/manual_keys.h"

#include "server/base/origin.h"

extern "C" {
#include "catalog/pg_type.h"
#include "utils/array.h"
#include "utils/memutils.h"
}

/* Scalar subqueries: each is one look at an index per key, whatever the planner thinks of the tables. */
static Statement ask_keys = {
    "SELECT k.hash, (SELECT l.lease_until > $5 FROM outbox.leases AS l WHERE l.server = $1 AND l.ordered "
    "AND l.key_hash = k.hash AND l.single = 0), "
    "(SELECT pg_catalog.array_agg(t.position) FROM outbox.events_pending AS t WHERE t.sink = ANY ($3) "
    "AND pg_catalog.hashtextextended(t.partition_key, 0) = k.hash AND (t.attempts > 0 OR t.redrive_late IS NOT NULL) "
    "AND t.origin = $6), "
    "CASE WHEN $4 THEN (SELECT pg_catalog.min(f.position) FROM outbox.events_failed AS f WHERE f.sink = ANY ($3) "
    "AND pg_catalog.hashtextextended(f.partition_key, 0) = k.hash AND f.origin = $6) END "
    "FROM pg_catalog.unnest($2) AS k (hash)",
    6,
    {OIDOID, INT8ARRAYOID, TEXTARRAYOID, BOOLOID, TIMESTAMPTZOID, INT8OID},
    NULL};
static Statement ask_singles = {"SELECT s.position, (SELECT l.lease_until > $3 FROM outbox.leases AS l WHERE "
                                "l.server = $1 AND l.ordered = $4 AND l.key_hash = 0 AND l.single = s.position) "
                                "FROM pg_catalog.unnest($2) AS s (position)",
                                4,
                                {OIDOID, INT8ARRAYOID, TIMESTAMPTZOID, BOOLOID},
                                NULL};
/* Leases that are over. One that somebody acknowledges this very moment is left to him. */
static Statement drop_lost = {
    "DELETE FROM outbox.leases WHERE ctid = ANY (ARRAY(SELECT l.ctid FROM unnest($3, $4) AS k (hash, single) "
    "JOIN outbox.leases AS l ON l.server = $1 AND l.ordered = $2 AND l.key_hash = k.hash AND l.single = k.single "
    "WHERE l.lease_until <= $5 FOR UPDATE OF l SKIP LOCKED)) RETURNING key_hash, single",
    5,
    {OIDOID, BOOLOID, INT8ARRAYOID, INT8ARRAYOID, TIMESTAMPTZOID},
    NULL};

/* Keys, or events without one, by what the leases say of them. */
typedef struct Answers {
  Claim *claim;
  int64 *lost_hashes, *lost_singles; /* their leases are over */
  int n_lost;
  int64 *leased_singles; /* in order */
  int n_leased;
} Answers;

ClaimKey *claim_key_of(Claim *claim, uint64 hash, bool *found) {
  return (ClaimKey *)hash_search(claim->keys, &hash, HASH_ENTER, found);
}

static void add_lost(Answers *answers, int64 hash, int64 single) {
  answers->lost_hashes[answers->n_lost] = hash;
  answers->lost_singles[answers->n_lost++] = single;
}

static bool visit_key(TupleTableSlot *slot, void *context) {
  Answers *answers = (Answers *)context;
  bool found;
  ClaimKey *key = claim_key_of(answers->claim, (uint64)DatumGetInt64(slot->tts_values[0]), &found);

  key->closed = !slot->tts_isnull[1]; /* a lease that is over has to be got first */
  if (key->closed && !DatumGetBool(slot->tts_values[1]))
    add_lost(answers, (int64)key->hash, 0);
  if (!slot->tts_isnull[2]) {
    Datum *positions;
    MemoryContext previous = MemoryContextSwitchTo(GetMemoryChunkContext(answers->claim->batch));
    deconstruct_array(DatumGetArrayTypeP(slot->tts_values[2]), INT8OID, 8, FLOAT8PASSBYVAL, TYPALIGN_DOUBLE,
                      &positions, NULL, &key->n_troubled);
    key->troubled = (int64 *)palloc(sizeof(int64) * key->n_troubled);
    key->taken = (bool *)palloc0(sizeof(bool) * key->n_troubled);
    for (int i = 0; i < key->n_troubled; i++)
      key->troubled[i] = DatumGetInt64(positions[i]);
    MemoryContextSwitchTo(previous);
  }
  if (!slot->tts_isnull[3])
    key->dead = DatumGetInt64(slot->tts_values[3]);
  return true;
}

static bool visit_single(TupleTableSlot *slot, void *context) {
  Answers *answers = (Answers *)context;
  int64 position = DatumGetInt64(slot->tts_values[0]);

  if (slot->tts_isnull[1])
    return true;
  if (!DatumGetBool(slot->tts_values[1]))
    add_lost(answers, 0, position);
  answers->leased_singles[answers->n_leased++] = position;
  return true;
}

static bool visit_dropped(TupleTableSlot *slot, void *context) {
  Answers *answers = (Answers *)context;
  uint64 hash = (uint64)DatumGetInt64(slot->tts_values[0]);
  int64 single = DatumGetInt64(slot->tts_values[1]);
  bool found;

  if (single == 0)
    claim_key_of(answers->claim, hash, &found)->closed = false;
  for (int i = 0; single != 0 && i < answers->n_leased; i++)
    if (answers->leased_singles[i] == single)
      answers->leased_singles[i] = 0;
  return true;
}

void claim_ask(Claim *claim) {
  const ManualSink *sink = claim->sink;
  int64 *hashes = (int64 *)palloc(sizeof(int64) * claim->n_batch);
  int64 *singles = (int64 *)palloc(sizeof(int64) * claim->n_batch);
  Answers answers = {
      claim, (int64 *)palloc(sizeof(int64) * claim->n_batch), (int64 *)palloc(sizeof(int64) * claim->n_batch),
      0,     (int64 *)palloc(sizeof(int64) * claim->n_batch), 0};
  int n_hashes = 0, n_singles = 0;

  for (int i = 0; i < claim->n_batch; i++) {
    bool found;
    if (claim->batch[i].key_hash == 0) {
      singles[n_singles++] = claim->batch[i].position;
      continue;
    }
    ClaimKey *key = claim_key_of(claim, claim->batch[i].key_hash, &found);
    if (found)
      continue;
    memset((char *)key + sizeof(key->hash), 0, sizeof(*key) - sizeof(key->hash));
    key->dead = PG_INT64_MAX;
    hashes[n_hashes++] = (int64)key->hash;
  }
  if (n_hashes > 0) {
    Datum values[] = {ObjectIdGetDatum(sink->server),  int8_array(hashes, n_hashes),    sink->names,
                      BoolGetDatum(sink->common.hold), TimestampTzGetDatum(claim->now), Int64GetDatum(origin_here())};
    statement_read(&ask_keys, values, claim->snapshot, visit_key, &answers);
  }
  if (n_singles > 0) {
    Datum values[] = {ObjectIdGetDatum(sink->server), int8_array(singles, n_singles), TimestampTzGetDatum(claim->now),
                      BoolGetDatum(sink->common.ordered)};
    statement_read(&ask_singles, values, claim->snapshot, visit_single, &answers);
  }
  if (answers.n_lost > 0) {
    Datum values[] = {ObjectIdGetDatum(sink->server), BoolGetDatum(sink->common.ordered),
                      int8_array(answers.lost_hashes, answers.n_lost),
                      int8_array(answers.lost_singles, answers.n_lost), TimestampTzGetDatum(claim->now)};
    statement_write(&drop_lost, values, visit_dropped, &answers);
  }
  if (answers.n_leased > 0) { /* both are in order of position, but for those that were dropped */
    int kept = 0, at = 0;
    for (int i = 0; i < claim->n_batch; i++) {
      while (at < answers.n_leased && answers.leased_singles[at] < claim->batch[i].position)
        at++;
      if (at < answers.n_leased && answers.leased_singles[at] == claim->batch[i].position &&
          claim->batch[i].key_hash == 0)
        continue;
      claim->batch[kept++] = claim->batch[i];
    }
    claim->n_batch = kept;
  }
}
