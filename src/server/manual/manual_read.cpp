/* manual_read.cpp: hands out what a claim has leased. An event that cannot be read, or that has no equivalent in the
 * client's encoding, is given back with its error; nothing of its key goes before it, and the rest is handed out. */
#include "server/manual/manual_read.h"

#include "server/base/is_worker.h"
#include "server/event/unreadable.h"

extern "C" {
#include "catalog/pg_type.h"
#include "mb/pg_wchar.h"
#include "utils/builtins.h"
#include "utils/jsonb.h"
#include "utils/memutils.h"
#include "utils/snapmgr.h"
#include "utils/tuplestore.h"
}

static const int POSITION_COLUMN = 13;
static Statement read_leased = {
    "SELECT e.id, e.aggregate_type, e.aggregate_id, e.event_type, e.payload, e.payload_bytes, e.content_type, "
    "e.headers, "
    "e.partition_key, e.dedup_key, e.seq, e.created_at, e.attempts, e.position, l.token, l.lease_until "
    "FROM outbox.events_pending AS e CROSS JOIN (SELECT $2, min(k.lease_until) FROM outbox.leases AS k "
    "WHERE k.token = $2) AS l (token, lease_until) WHERE e.position = ANY ($1) ORDER BY e.position",
    2,
    {INT8ARRAYOID, UUIDOID},
    NULL};

typedef struct Handout {
  const Claim *claim;
  ReturnSetInfo *result;
  MemoryContext scratch; /* of one row */
} Handout;

/* What would fail when the rows are sent to the client, where nobody can tell which event it was. */
static void try_to_send(Oid type, Datum value) {
  struct varlena *read = PG_DETOAST_DATUM_PACKED(value);

  if (type == BYTEAOID || pg_get_client_encoding() == GetDatabaseEncoding())
    return;
  value = PointerGetDatum(read);
  if (type == JSONBOID) {
    Jsonb *json = DatumGetJsonbP(value);
    char *text = JsonbToCString(NULL, &json->root, (int)VARSIZE(json));
    (void)pg_server_to_client(text, (int)strlen(text));
  } else {
    (void)pg_server_to_client(VARDATA_ANY(read), (int)VARSIZE_ANY_EXHDR(read));
  }
}

static bool put_row(TupleTableSlot *slot, void *context) {
  const Handout *handout = (const Handout *)context;
  TupleDesc desc = handout->result->setDesc;
  const Datum *values = slot->tts_values;
  MemoryContext caller = MemoryContextSwitchTo(handout->scratch);

  unreadable_begin(DatumGetInt64(values[POSITION_COLUMN]), InvalidTransactionId, PART_EVENT);
  for (int i = 0; i < desc->natts; i++)
    if (TupleDescAttr(desc, i)->attlen == -1 && !slot->tts_isnull[i])
      try_to_send(TupleDescAttr(desc, i)->atttypid, values[i]);
  unreadable_done();
  tuplestore_putvalues(handout->result->setResult, desc, slot->tts_values, slot->tts_isnull);
  MemoryContextSwitchTo(caller);
  MemoryContextReset(handout->scratch);
  return true;
}

static void read_rows(void *context) {
  Handout *handout = (Handout *)context;
  const Claim *claim = handout->claim;
  Datum values[] = {int8_array(claim->positions, claim->n_leased), UUIDPGetDatum(&claim->token)};
  Snapshot snapshot = RegisterSnapshot(GetLatestSnapshot());

  statement_read(&read_leased, values, snapshot, put_row, handout);
  UnregisterSnapshot(snapshot);
}

/* As outbox.nack() would; but no attempt is spent: it was not delivery's. */
static Statement give_back = {"SELECT outbox_internal.record_failure($1, $2, NULL, $3, '1 minute', false, $4)",
                              4,
                              {OIDOID, UUIDOID, TEXTOID, INT8OID},
                              NULL};
static Statement read_rest = {
    "SELECT p.position FROM outbox.leases AS l CROSS JOIN unnest(l.positions) AS p (position) "
    "WHERE l.token = $1 AND p.position > $2",
    2,
    {UUIDOID, INT8OID},
    NULL};

static bool visit_rest(TupleTableSlot *slot, void *context) {
  Claim *claim = (Claim *)context;

  claim->positions[claim->n_leased++] = DatumGetInt64(slot->tts_values[0]);
  return true;
}

/* The server gives the event back, not a user: nobody has to look at its row again. */
static void give_back_unreadable(Claim *claim, const UnreadableRow *failed) {
  Datum values[] = {ObjectIdGetDatum(claim->caller), UUIDPGetDatum(&claim->token), CStringGetTextDatum(failed->error),
                    Int64GetDatum(failed->position)};
  const bool was_worker = server_is_worker;

  server_is_worker = true;
  PG_TRY();
  { statement_write(&give_back, values, NULL, NULL); }
  PG_FINALLY();
  { server_is_worker = was_worker; }
  PG_END_TRY();
}

void claim_hand_out(Claim *claim, ReturnSetInfo *result) {
  Handout handout = {claim, result,
                     AllocSetContextCreate(CurrentMemoryContext, "outbox event to hand out", ALLOCSET_SMALL_SIZES)};
  UnreadableRow failed;

  while (claim->n_leased > 0 && !unreadable_try(read_rows, &handout, &failed)) {
    give_back_unreadable(claim, &failed);
    Datum values[] = {UUIDPGetDatum(&claim->token), Int64GetDatum(failed.position)};
    claim->n_leased = 0; /* the tuplestore has the events before it */
    statement_write(&read_rest, values, visit_rest, claim);
    MemoryContextReset(handout.scratch);
    CHECK_FOR_INTERRUPTS();
  }
}
