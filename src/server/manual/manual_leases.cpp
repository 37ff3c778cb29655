/* manual_leases.cpp: the leases of a claim, while some of its events end. */
#include "server/manual/manual_leases.h"

#include "server/manual/manual_sink.h"

extern "C" {
#include "catalog/pg_type.h"
#include "utils/array.h"
#include "utils/memutils.h"
}

/* In the order of keys, in which every claim takes them. Waits for a claim that is about to take one over. */
static Statement lock_leases = {"SELECT l.ctid, l.server, l.key_hash, l.overtaken_by, l.ids, l.positions FROM "
                                "outbox.leases AS l WHERE l.token = $1 "
                                "ORDER BY l.key_hash, l.single FOR UPDATE",
                                1,
                                {UUIDOID},
                                NULL};
static Statement drop_leases = {"DELETE FROM outbox.leases WHERE ctid = ANY ($1)", 1, {TIDARRAYOID}, NULL};
static Statement shrink_lease = {"UPDATE outbox.leases SET ids = $2, positions = $3, overtaken_by = nullif($4, 0) "
                                 "WHERE ctid = $1",
                                 4,
                                 {TIDOID, UUIDARRAYOID, INT8ARRAYOID, INT8OID},
                                 NULL};

static bool visit_lease(TupleTableSlot *slot, void *context) {
  Leases *leases = (Leases *)context;
  MemoryContext previous = MemoryContextSwitchTo(leases->context);
  Datum *ids, *positions;

  if (leases->n == leases->max)
    leases->list = (Lease *)repalloc_huge(leases->list, sizeof(Lease) * (leases->max *= 2));
  Lease *lease = &leases->list[leases->n++];
  lease->ctid = *(ItemPointer)DatumGetPointer(slot->tts_values[0]);
  lease->server = DatumGetObjectId(slot->tts_values[1]);
  lease->key_hash = DatumGetInt64(slot->tts_values[2]);
  lease->overtaken_by = slot->tts_isnull[3] ? 0 : DatumGetInt64(slot->tts_values[3]);
  deconstruct_array(DatumGetArrayTypePCopy(slot->tts_values[4]), UUIDOID, UUID_LEN, false, TYPALIGN_CHAR, &ids, NULL,
                    &lease->n);
  deconstruct_array(DatumGetArrayTypePCopy(slot->tts_values[5]), INT8OID, 8, FLOAT8PASSBYVAL, TYPALIGN_DOUBLE,
                    &positions, NULL, &lease->n);
  lease->ids = (pg_uuid_t *)palloc(sizeof(pg_uuid_t) * lease->n);
  lease->positions = (int64 *)palloc(sizeof(int64) * lease->n);
  lease->ended = (bool *)palloc0(sizeof(bool) * lease->n);
  for (int i = 0; i < lease->n; i++) {
    lease->ids[i] = *DatumGetUUIDP(ids[i]);
    lease->positions[i] = DatumGetInt64(positions[i]);
  }
  MemoryContextSwitchTo(previous);
  return true;
}

Leases leases_of(const pg_uuid_t *token) {
  Leases leases = {CurrentMemoryContext, (Lease *)palloc(sizeof(Lease) * 16), 0, 16};
  Datum values[] = {UUIDPGetDatum(token)};

  statement_write(&lock_leases, values, visit_lease, &leases);
  return leases;
}

static void write_rest(const Lease *lease) {
  Datum *ids = (Datum *)palloc(sizeof(Datum) * lease->n);
  int64 *positions = (int64 *)palloc(sizeof(int64) * lease->n);
  ItemPointerData place = lease->ctid;
  int n = 0;

  for (int i = 0; i < lease->n; i++)
    if (!lease->ended[i]) {
      ids[n] = UUIDPGetDatum(&lease->ids[i]);
      positions[n++] = lease->positions[i];
    }
  Datum values[] = {PointerGetDatum(&place),
                    PointerGetDatum(construct_array(ids, n, UUIDOID, UUID_LEN, false, TYPALIGN_CHAR)),
                    int8_array(positions, n), Int64GetDatum(lease->overtaken_by)};
  statement_write(&shrink_lease, values, NULL, NULL);
}

void leases_write(const Leases *leases) {
  ItemPointerData *over = (ItemPointerData *)palloc(sizeof(ItemPointerData) * Max(leases->n, 1));
  int n_over = 0;

  for (int i = 0; i < leases->n; i++) {
    const Lease *lease = &leases->list[i];
    int n_ended = 0;
    for (int j = 0; j < lease->n; j++)
      n_ended += lease->ended[j];
    if (n_ended == lease->n)
      over[n_over++] = lease->ctid;
    else if (n_ended > 0)
      write_rest(lease);
  }
  if (n_over > 0) {
    Datum values[] = {tid_array(over, n_over)};
    statement_write(&drop_leases, values, NULL, NULL);
  }
}
