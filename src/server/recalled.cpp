/* recalled.cpp: rows that came back behind the cursors, and heads that left. */
#include "claim_round.h"
#include "dead_letters.h"
#include "lanes.h"

extern "C" {
#include "catalog/pg_type.h"
}

static Statement read_positions = {PENDING_ROWS "position = ANY ($1) ORDER BY position", 1, {INT8ARRAYOID}, NULL};
static Statement read_recalled = {
    "SELECT ctid, position FROM outbox.recalled ORDER BY position LIMIT $1", 1, {INT8OID}, NULL};
static Statement forget_recalled = {"DELETE FROM outbox.recalled WHERE ctid = ANY ($1)", 1, {TIDARRAYOID}, NULL};

static int by_position(const void *a, const void *b) {
  int64 left = *(const int64 *)a, right = *(const int64 *)b;

  return left < right ? -1 : left > right;
}

static bool visit_recalled_row(TupleTableSlot *slot, void *context) {
  RecalledList *list = (RecalledList *)context;
  WorkerSink *sink;
  EventRow row;

  event_row_read(slot, &row);
  /* It may have led a key that it has left since. */
  sink = row.sink ? worker_sink_find(row.sink, row.sink_length) : NULL;
  HeldKey *key = sink ? held_key_find(sink->oid, row.key_hash) : NULL;
  if (key == NULL || key->head != row.position)
    held_keys_release_positions(&row.position, 1);
  Verdict verdict = judge(&row, RECALLED, &sink);
  if (verdict == STOP)
    sink->starved = list->wanted_again = true;
  bool mine = lane_is_mine(row.key_hash, row.position);
  for (int i = 0; i < list->n; i++)
    if (list->rows[i].position == row.position)
      list->rows[i].fate = verdict == STOP || !mine ? RecalledRow::KEEP : RecalledRow::DONE;
  return true;
}

/* No pending row: a dead letter, which may hold its key, or deleted by a person, and its key goes on. */
static void look_at_gone(RecalledList *list) {
  int64 *gone = (int64 *)palloc(sizeof(int64) * Max(list->n, 1));
  DeadLetter *states = (DeadLetter *)palloc(sizeof(DeadLetter) * Max(list->n, 1));
  int n = 0, released = 0;

  for (int i = 0; i < list->n; i++)
    if (list->rows[i].fate == RecalledRow::GONE)
      gone[n++] = list->rows[i].position;
  dead_letters_look(gone, states, n);
  n = 0;
  for (int i = 0; i < list->n; i++) {
    if (list->rows[i].fate != RecalledRow::GONE)
      continue;
    DeadLetter state = states[n++];
    if (state == DEAD_ELSEWHERE)
      list->rows[i].fate = RecalledRow::KEEP;
    else if (state != DEAD_HOLDS)
      gone[released++] = list->rows[i].position;
  }
  qsort(gone, released, sizeof(int64), by_position);
  held_keys_release_positions(gone, released);
}

void recalled_look(RecalledList *list, Snapshot snapshot) {
  int64 *positions = (int64 *)palloc(sizeof(int64) * Max(list->n, 1));

  for (int i = 0; i < list->n; i++)
    positions[i] = list->rows[i].position;
  Datum values[] = {int8_array(positions, list->n)};
  statement_read(&read_positions, values, snapshot, visit_recalled_row, list);
  look_at_gone(list);
}

static bool visit_recalled(TupleTableSlot *slot, void *context) {
  RecalledList *list = (RecalledList *)context;
  RecalledRow *item = &list->rows[list->n++];

  item->ctid = *(ItemPointer)DatumGetPointer(slot->tts_values[0]);
  item->position = DatumGetInt64(slot->tts_values[1]);
  item->fate = RecalledRow::GONE;
  return true;
}

bool recalled_claim(Snapshot snapshot) {
  const int limit = 1000;
  RecalledList list = {(RecalledRow *)palloc(sizeof(RecalledRow) * limit), 0, false};
  Datum values[] = {Int64GetDatum(limit)};

  statement_read(&read_recalled, values, snapshot, visit_recalled, &list);
  if (list.n == 0)
    return false;
  recalled_look(&list, snapshot);
  ItemPointerData *done = (ItemPointerData *)palloc(sizeof(ItemPointerData) * list.n);
  int n_done = 0;
  for (int i = 0; i < list.n; i++)
    if (list.rows[i].fate != RecalledRow::KEEP)
      done[n_done++] = list.rows[i].ctid;
  Datum place = tid_array(done, n_done);
  statement_write(&forget_recalled, &place, NULL, NULL);
  return list.wanted_again || (list.n == limit && n_done > 0);
}

static void check_dead_heads(void) {
  int n;
  int64 *unseen = held_keys_unseen(&n);
  DeadLetter *states = (DeadLetter *)palloc(sizeof(DeadLetter) * Max(n, 1));

  dead_letters_look(unseen, states, n);
  int released = 0;
  for (int i = 0; i < n; i++)
    if (states[i] != DEAD_HOLDS && flight_find(unseen[i]) == NULL)
      unseen[released++] = unseen[i];
  qsort(unseen, released, sizeof(int64), by_position);
  held_keys_release_positions(unseen, released);
}

static bool visit_head(TupleTableSlot *slot, void *) {
  EventRow row;

  event_row_read(slot, &row);
  WorkerSink *sink = row.sink ? worker_sink_find(row.sink, row.sink_length) : NULL;
  HeldKey *key = sink ? held_key_find(sink->oid, row.key_hash) : NULL;
  if (key && key->head == row.position)
    key->seen = true;
  return true;
}

void recalled_check_heads(Snapshot snapshot) {
  int n;
  int64 *heads = held_keys_heads(&n);

  if (n == 0)
    return;
  Datum values[] = {int8_array(heads, n)};
  statement_read(&read_positions, values, snapshot, visit_head, NULL);
  check_dead_heads();
}
