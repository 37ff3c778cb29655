/*
 * overtaken_rows.cpp: the earlier rows of keys of which something was delivered. A user may have locked such a row,
 * maybe to redrive it: the worker does not wait for that.
 */
#include "server/record/record_table.h"

#include "server/event/status_sql.h"
#include "server/inflight/events_in_flight.h"
#include "server/storage/row_lock.h"
#include "server/storage/sql.h"

extern "C" {
#include "catalog/pg_type.h"
#include "utils/builtins.h"
}

using dispatch::EarlierRowAction;
using dispatch::OvertakenRow;

/* One snapshot for both tables: a row that moves from one to the other is seen once. */
static Statement find_earlier_rows = make_statement<TEXTARRAYOID, INT8ARRAYOID, INT8ARRAYOID>(
    "SELECT k.n, e.* FROM ROWS FROM (unnest($1), unnest($2), unnest($3)) WITH ORDINALITY AS k (sink, hash, bound, n) "
    "CROSS JOIN LATERAL ("
    "SELECT f.position, f.ctid, true, f.redrive_late FROM outbox.events_failed AS f WHERE f.sink = k.sink "
    "AND pg_catalog.hashtextextended(f.partition_key, 0) = k.hash AND f.position < k.bound "
    "AND f.overtaken_by IS NULL "
    "UNION ALL "
    "SELECT p.position, p.ctid, false, p.redrive_late FROM outbox.events_pending AS p WHERE p.sink = k.sink "
    "AND pg_catalog.hashtextextended(p.partition_key, 0) = k.hash AND p.position < k.bound "
    "AND p.overtaken_by IS NULL "
    "AND (p.last_attempt_at IS NOT NULL OR p.redrive_late IS NOT NULL)) AS e");
static Statement lock_failed =
    make_statement<INT8ARRAYOID>("SELECT position, ctid FROM outbox.events_failed WHERE position = ANY ($1) "
                                 "FOR UPDATE SKIP LOCKED");
static Statement mark_failed =
    make_statement<TIDARRAYOID, INT8ARRAYOID>("UPDATE outbox.events_failed AS f SET overtaken_by = m.overtaken_by "
                                              "FROM unnest($1, $2) AS m (ctid, overtaken_by) WHERE f.ctid = m.ctid");
static Statement mark_pending =
    make_statement<TIDARRAYOID, INT8ARRAYOID>("UPDATE outbox.events_pending AS p SET overtaken_by = m.overtaken_by "
                                              "FROM unnest($1, $2) AS m (ctid, overtaken_by) WHERE p.ctid = m.ctid");
/* A redriven event that came too late is a dead letter again. */
static Statement move_to_dead_letters = make_statement<TIDARRAYOID, INT8ARRAYOID, INT8ARRAYOID>(
    "WITH gone AS (DELETE FROM outbox.events_pending WHERE ctid = ANY ($1) RETURNING *) "
    "INSERT INTO outbox.events (" MOVED_COLUMNS ", overtaken_by, attempts, last_error, last_attempt_at, status) "
    "SELECT " MOVED_COLUMNS ", m.overtaken_by, attempts, " REDRIVEN_TOO_LATE(
        "m.overtaken_by") ", pg_catalog.now(), "
                          "'FAILED' "
                          "FROM gone JOIN unnest($2, $3) AS m (at, overtaken_by) ON m.at = position");

static dispatch::RowHandle handle_in(Datum ctid) {
  return handle_of((ItemPointer)DatumGetPointer(ctid));
}

static bool visit_earlier(TupleTableSlot *slot, void *context) {
  const auto *visit = (const dispatch::FunctionRef<void, uint32_t, const dispatch::EarlierRow &> *)context;
  const uint32 key = (uint32)DatumGetInt64(slot->tts_values[0]) - 1;
  const bool dead = DatumGetBool(slot->tts_values[3]);
  const bool in_order = !dead && !slot->tts_isnull[4] && !DatumGetBool(slot->tts_values[4]);

  (*visit)(key, {DatumGetInt64(slot->tts_values[1]), handle_in(slot->tts_values[2]), dead, in_order});
  return true;
}

void RecordTable::find_earlier(std::span<const dispatch::SentKey> keys,
                               dispatch::FunctionRef<void, uint32_t, const dispatch::EarlierRow &> visit) {
  Datum *sinks = palloc_array(Datum, keys.size());
  int64 *hashes = (int64 *)palloc(sizeof(int64) * keys.size());
  int64 *bounds = (int64 *)palloc(sizeof(int64) * keys.size());

  for (size_t i = 0; i < keys.size(); i++) {
    sinks[i] = CStringGetTextDatum(sink_of(keys[i].last)->name);
    hashes[i] = (int64)keys[i].last->key_hash;
    bounds[i] = keys[i].last->position;
  }
  const int n = (int)keys.size();
  Datum values[] = {text_array(sinks, n), int8_array(hashes, n), int8_array(bounds, n)};
  statement_read(&find_earlier_rows, values, InvalidSnapshot, visit_earlier, &visit);
}

static bool visit_locked(TupleTableSlot *slot, void *) {
  OvertakenRow *row = dispatcher().out_of_order.find_dead_letter(DatumGetInt64(slot->tts_values[0]));

  if (row) {
    row->locked = true;
    row->handle = handle_in(slot->tts_values[1]);
  }
  return true;
}

static void lock_dead_letters(std::span<const OvertakenRow> rows) {
  if (rows.empty())
    return;
  int64 *positions = (int64 *)palloc(sizeof(int64) * rows.size());
  for (size_t i = 0; i < rows.size(); i++)
    positions[i] = rows[i].position;
  Datum values[] = {int8_array(positions, (int)rows.size())};
  statement_write(&lock_failed, values, visit_locked, NULL);
}

void RecordTable::lock_earlier(std::span<OvertakenRow> dead_letters, std::span<OvertakenRow> pending) {
  RowLock *locks = palloc_array(RowLock, Max(pending.size(), 1));

  lock_dead_letters(dead_letters);
  for (size_t i = 0; i < pending.size(); i++)
    locks[i] = {pending[i].position, ctid_of(&pending[i].handle), ROW_GONE, &pending[i]};
  row_lock(locks, (int)pending.size(), NULL);
  for (size_t i = 0; i < pending.size(); i++) {
    OvertakenRow *row = (OvertakenRow *)locks[i].owner;
    row->locked = locks[i].result == ROW_LOCKED;
    row->handle = handle_of(&locks[i].ctid);
  }
}

void RecordTable::write_overtaken(EarlierRowAction action, std::span<const OvertakenRow> rows) {
  ItemPointerData *ctids = palloc_array(ItemPointerData, rows.size());
  int64 *positions = (int64 *)palloc(sizeof(int64) * rows.size());
  int64 *overtaken_by = (int64 *)palloc(sizeof(int64) * rows.size());
  int n = 0;

  for (const OvertakenRow &row : rows) {
    if (!row.locked)
      continue;
    ctids[n] = ctid_of(&row.handle);
    positions[n] = row.position;
    overtaken_by[n++] = row.overtaken_by;
  }
  if (n == 0)
    return;
  Datum marks[] = {tid_array(ctids, n), int8_array(overtaken_by, n)};
  Datum moves[] = {tid_array(ctids, n), int8_array(positions, n), int8_array(overtaken_by, n)};
  switch (action) {
  case EarlierRowAction::MARK_DEAD_LETTER:
    statement_write(&mark_failed, marks, NULL, NULL);
    break;
  case EarlierRowAction::MARK_PENDING:
    statement_write(&mark_pending, marks, NULL, NULL);
    break;
  case EarlierRowAction::DEAD_LETTER_AGAIN:
    statement_write(&move_to_dead_letters, moves, NULL, NULL);
  }
}
