/*
 * out_of_order.cpp: finds, locks and marks the earlier rows of keys of which something was delivered. It looks for
 * them when the delivery is recorded and not when they are redriven, because delivered rows are gone by then. A user
 * may have locked such a row, maybe to redrive it: the worker does not wait for that.
 */
#include "server/record/out_of_order.h"

#include "server/base/fault_point.h"
#include "server/event/status_sql.h"
#include "server/sinks/worker_sinks.h"
#include "server/storage/row_lock.h"
#include "server/storage/sql.h"

extern "C" {
#include "catalog/pg_type.h"
#include "utils/builtins.h"
}

using dispatch::EarlierFate;
using dispatch::EarlierRow;
using dispatch::OvertakenRow;
using dispatch::RowHandle;
using dispatch::SentKey;

/* One snapshot for both tables: a row that moves from one to the other is seen once. */
static Statement find_earlier = make_statement<TEXTARRAYOID, INT8ARRAYOID, INT8ARRAYOID>(
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
static Statement mark_failed = make_statement<TIDARRAYOID, INT8ARRAYOID>(
    "UPDATE outbox.events_failed AS f SET overtaken_by = m.overtaken_by "
    "FROM unnest($1, $2) AS m (place, overtaken_by) WHERE f.ctid = m.place");
static Statement mark_pending = make_statement<TIDARRAYOID, INT8ARRAYOID>(
    "UPDATE outbox.events_pending AS p SET overtaken_by = m.overtaken_by "
    "FROM unnest($1, $2) AS m (place, overtaken_by) WHERE p.ctid = m.place");
/* A redriven event that came too late is a dead letter again. */
static Statement move_to_dead_letters = make_statement<TIDARRAYOID, INT8ARRAYOID, INT8ARRAYOID>(
    "WITH gone AS (DELETE FROM outbox.events_pending WHERE ctid = ANY ($1) RETURNING *) "
    "INSERT INTO outbox.events (" MOVED_COLUMNS ", overtaken_by, attempts, last_error, last_attempt_at, status) "
    "SELECT " MOVED_COLUMNS ", m.overtaken_by, attempts, " REDRIVEN_TOO_LATE(
        "m.overtaken_by") ", pg_catalog.now(), "
                          "'FAILED' "
                          "FROM gone JOIN unnest($2, $3) AS m (at, overtaken_by) ON m.at = position");

static dispatch::OutOfOrder &out_of_order(void) {
  return dispatcher().out_of_order;
}

static RowHandle handle_of(Datum ctid) {
  const ItemPointer place = (ItemPointer)DatumGetPointer(ctid);

  return {ItemPointerGetBlockNumber(place), ItemPointerGetOffsetNumber(place), 0, 0};
}

static bool visit_earlier(TupleTableSlot *slot, void *) {
  const uint32 key = (uint32)DatumGetInt64(slot->tts_values[0]) - 1;
  const bool dead = DatumGetBool(slot->tts_values[3]);
  const bool in_order = !dead && !slot->tts_isnull[4] && !DatumGetBool(slot->tts_values[4]);
  const EarlierRow row = {DatumGetInt64(slot->tts_values[1]), handle_of(slot->tts_values[2]), dead, in_order};

  require_memory(out_of_order().found(in_flight(), key, row));
  return true;
}

static void find_rows(void) {
  const std::span<const SentKey> keys = out_of_order().keys();
  Datum *sinks = (Datum *)palloc(sizeof(Datum) * keys.size());
  int64 *hashes = (int64 *)palloc(sizeof(int64) * keys.size());
  int64 *bounds = (int64 *)palloc(sizeof(int64) * keys.size());

  for (size_t i = 0; i < keys.size(); i++) {
    sinks[i] = CStringGetTextDatum(sink_of(keys[i].last)->name);
    hashes[i] = (int64)keys[i].last->key_hash;
    bounds[i] = keys[i].last->position;
  }
  const int n = (int)keys.size();
  Datum values[] = {text_array(sinks, n), int8_array(hashes, n), int8_array(bounds, n)};
  statement_read(&find_earlier, values, InvalidSnapshot, visit_earlier, NULL);
  out_of_order().all_found();
}

static bool visit_locked(TupleTableSlot *slot, void *) {
  OvertakenRow *row = out_of_order().find_dead_letter(DatumGetInt64(slot->tts_values[0]));

  if (row) {
    row->locked = true;
    row->handle = handle_of(slot->tts_values[1]);
  }
  return true;
}

static void lock_dead_letters(std::span<OvertakenRow> rows) {
  if (rows.empty())
    return;
  int64 *positions = (int64 *)palloc(sizeof(int64) * rows.size());
  for (size_t i = 0; i < rows.size(); i++)
    positions[i] = rows[i].position;
  Datum values[] = {int8_array(positions, (int)rows.size())};
  statement_write(&lock_failed, values, visit_locked, NULL);
}

static void lock_pending(std::span<OvertakenRow> rows) {
  if (rows.empty())
    return;
  RowLock *locks = (RowLock *)palloc(sizeof(RowLock) * rows.size());
  for (size_t i = 0; i < rows.size(); i++)
    locks[i] = {rows[i].position, place_of(&rows[i].handle), ROW_GONE, &rows[i]};
  row_lock(locks, (int)rows.size(), NULL);
  for (size_t i = 0; i < rows.size(); i++) {
    OvertakenRow *row = (OvertakenRow *)locks[i].owner;
    row->locked = locks[i].result == ROW_LOCKED;
    row->handle = handle_of(PointerGetDatum(&locks[i].ctid));
  }
}

static void lock_rows(void) {
  const std::span<OvertakenRow> all = out_of_order().rows();
  const std::span<OvertakenRow> dead = out_of_order().rows(EarlierFate::MARK_DEAD_LETTER);

  lock_dead_letters(dead);
  lock_pending(all.subspan(dead.size()));
  out_of_order().put_off_after_unlocked();
}

static void dead_letter_again(const OvertakenRow *row) {
  const InFlightEvent *later = out_of_order().keys()[row->key].last;

  require_memory(dispatcher().dead_letter(later->sink->id, later->key_hash, row->position,
                                          sink_of(later)->common.dead_letters_block));
}

static void write_marks(EarlierFate fate) {
  const std::span<OvertakenRow> rows = out_of_order().rows(fate);
  ItemPointerData *places = (ItemPointerData *)palloc(sizeof(ItemPointerData) * rows.size());
  int64 *positions = (int64 *)palloc(sizeof(int64) * rows.size());
  int64 *overtaken_by = (int64 *)palloc(sizeof(int64) * rows.size());
  int n = 0;

  for (const OvertakenRow &row : rows) {
    if (!row.locked)
      continue;
    places[n] = place_of(&row.handle);
    positions[n] = row.position;
    overtaken_by[n++] = row.overtaken_by;
    if (fate == EarlierFate::DEAD_LETTER_AGAIN)
      dead_letter_again(&row);
  }
  if (n == 0)
    return;
  Datum marks[] = {tid_array(places, n), int8_array(overtaken_by, n)};
  Datum moves[] = {tid_array(places, n), int8_array(positions, n), int8_array(overtaken_by, n)};
  switch (fate) {
  case EarlierFate::MARK_DEAD_LETTER:
    statement_write(&mark_failed, marks, NULL, NULL);
    break;
  case EarlierFate::MARK_PENDING:
    statement_write(&mark_pending, marks, NULL, NULL);
    break;
  case EarlierFate::DEAD_LETTER_AGAIN:
    statement_write(&move_to_dead_letters, moves, NULL, NULL);
  }
}

void out_of_order_mark(InFlightEvent **sent, int n, Moment now) {
  Assert(in_spi());
  out_of_order().begin(now);
  for (int i = 0; i < n; i++)
    if (dispatcher().may_be_out_of_order(sent[i]))
      require_memory(out_of_order().add(sent[i]));
  require_memory(out_of_order().group(in_flight()));
  if (out_of_order().keys().empty())
    return;
  OUTBOX_FAULT_POINT("record.before_overtaken");
  find_rows();
  if (out_of_order().rows().empty())
    return;
  lock_rows();
  write_marks(EarlierFate::MARK_DEAD_LETTER);
  write_marks(EarlierFate::MARK_PENDING);
  write_marks(EarlierFate::DEAD_LETTER_AGAIN);
}
