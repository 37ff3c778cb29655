/* manual_read.cpp: hands out what a claim has leased. An event that cannot be read, or that has no equivalent in the
 * client's encoding, is put back with its error; nothing of its key goes before it, and the rest is handed out. */

#include "server/manual/manual_read.h"

#include "server/event/unreadable.h"
#include "server/manual/manual_end.h"
#include "server/manual/manual_leases.h"

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
/* It is given out again so much later. */
static const int64 PAUSE_MS = 60 * 1000;

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

/* What comes after an event that was put back: the tuplestore has the others. */
static void lease_rest(Claim *claim, int64 after) {
  Leases leases = leases_of(&claim->token);

  claim->n_leased = 0;
  for (int i = 0; i < leases.n; i++)
    for (int j = 0; j < leases.list[i].n; j++)
      if (leases.list[i].positions[j] > after)
        claim->positions[claim->n_leased++] = leases.list[i].positions[j];
}

void claim_hand_out(Claim *claim, ReturnSetInfo *result) {
  Handout handout = {claim, result,
                     AllocSetContextCreate(CurrentMemoryContext, "outbox event to hand out", ALLOCSET_SMALL_SIZES)};
  UnreadableRow failed;

  while (claim->n_leased > 0 && !unreadable_try(read_rows, &handout, &failed)) {
    manual_put_back(claim->sink, &claim->token, failed.position, failed.error, PAUSE_MS);
    lease_rest(claim, failed.position);
    MemoryContextReset(handout.scratch);
    CHECK_FOR_INTERRUPTS();
  }
}
