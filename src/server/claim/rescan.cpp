/*
 * rescan.cpp: reads single rows that no scan finds: rows that users or the router have changed behind the sinks'
 * cursors, and blockers that may have left the table (dispatch/rescan_cursor.h, dispatch/blocker_check.h). A full
 * page of the queue is followed by the next page at once: otherwise outbox.adopt() of a million events for a paused
 * sink took one poll per 1,000 events.
 */
#include "server/claim/rescan.h"

#include "server/base/fault_point.h"
#include "server/base/settings.h"
#include "server/claim/classify_row.h"
#include "server/claim/late_commits.h"
#include "server/event/event_row.h"
#include "server/inflight/blocking.h"
#include "server/inflight/dead_letters.h"
#include "server/inflight/in_flight.h"
#include "server/sinks/shard_handoff.h"
#include "server/sinks/worker_sinks.h"
#include "server/storage/sql.h"

extern "C" {
#include "catalog/pg_type.h"
}

static Statement read_positions = make_statement<INT8ARRAYOID>(PENDING_ROWS "position = ANY ($1) ORDER BY position");
static Statement read_queue = make_statement<XID8OID, INT8OID, INT8OID>(
    "SELECT ctid, position, xact FROM outbox_internal.rescan_queue WHERE (xact, position) > ($1, $2) "
    "ORDER BY xact, position LIMIT $3");
static Statement delete_entries =
    make_statement<TIDARRAYOID>("DELETE FROM outbox_internal.rescan_queue WHERE ctid = ANY ($1)");

static int by_position(const void *a, const void *b) {
  int64 left = (*(RescanRow *const *)a)->position, right = (*(RescanRow *const *)b)->position;

  return left < right ? -1 : left > right;
}

static int first_of(const RescanList *list, int64 position) {
  int low = 0, high = list->n;

  while (low < high) {
    int middle = low + (high - low) / 2;
    if (list->by_position[middle]->position < position)
      low = middle + 1;
    else
      high = middle;
  }
  return low;
}

static bool visit_row(TupleTableSlot *slot, void *context) {
  RescanList *list = (RescanList *)context;
  WorkerSink *sink;
  EventRow row;

  event_row_read(slot, &row);
  sink = row.sink ? worker_sink_find(row.sink, row.sink_length) : NULL;
  blocked_keys().row_seen(sink ? sink->oid : InvalidOid, row.key_hash, row.position);
  const RowVerdict verdict = classify_row(&row, RowScan::RESCAN, &sink);
  if (verdict == RowVerdict::STOP) {
    sink->cursor->set_has_backlog(true);
    list->wanted_again = true;
  }
  bool mine = shard_is_mine(sink, dispatch::shard_of(row.key_hash, row.position));
  /* The queue may name a position more than once. */
  for (int i = first_of(list, row.position); i < list->n && list->by_position[i]->position == row.position; i++) {
    RescanRow *item = list->by_position[i];
    item->fate = !mine ? RescanRow::OTHERS : verdict == RowVerdict::STOP ? RescanRow::KEEP : RescanRow::DONE;
    item->sink = sink ? sink->oid : InvalidOid;
    item->key_hash = row.key_hash;
  }
  return true;
}

/* For positions without a pending row: the event is a dead letter, which may block its key, or a user has deleted it,
 * and its key is released. */
static void look_at_gone(RescanList *list, Snapshot snapshot) {
  int64 *gone = (int64 *)palloc(sizeof(int64) * Max(list->n, 1));
  DeadLetter *states = (DeadLetter *)palloc(sizeof(DeadLetter) * Max(list->n, 1));
  int n = 0, released = 0;

  for (int i = 0; i < list->n; i++)
    if (list->rows[i].fate == RescanRow::GONE)
      gone[n++] = list->rows[i].position;
  dead_letters_find(gone, states, n, snapshot);
  n = 0;
  for (int i = 0; i < list->n; i++) {
    if (list->rows[i].fate != RescanRow::GONE)
      continue;
    DeadLetter state = states[n++];
    if (state == DEAD_ELSEWHERE)
      list->rows[i].fate = RescanRow::OTHERS;
    else if (state != DEAD_BLOCKS)
      gone[released++] = list->rows[i].position;
  }
  for (int i = 0; i < released; i++)
    blocked_keys().release(gone[i]);
}

void rescan_look(RescanList *list, Snapshot snapshot) {
  int64 *positions = (int64 *)palloc(sizeof(int64) * Max(list->n, 1));

  list->by_position = (RescanRow **)palloc(sizeof(RescanRow *) * Max(list->n, 1));
  for (int i = 0; i < list->n; i++) {
    positions[i] = list->rows[i].position;
    list->by_position[i] = &list->rows[i];
  }
  qsort(list->by_position, list->n, sizeof(RescanRow *), by_position);
  Datum values[] = {int8_array(positions, list->n)};
  statement_read(&read_positions, values, snapshot, visit_row, list);
  look_at_gone(list, snapshot);
}

static bool visit_entry(TupleTableSlot *slot, void *context) {
  RescanList *list = (RescanList *)context;
  RescanRow *item = &list->rows[list->n++];

  item->ctid = *(ItemPointer)DatumGetPointer(slot->tts_values[0]);
  item->position = DatumGetInt64(slot->tts_values[1]);
  item->xact = DatumGetUInt64(slot->tts_values[2]);
  item->fate = RescanRow::GONE;
  return true;
}

static void end_page(const RescanList *list, bool full) {
  dispatch::RescanCursor &cursor = dispatcher().rescan_cursor;

  for (int i = 0; i < list->n; i++)
    if (list->rows[i].fate == RescanRow::KEEP)
      cursor.row_kept(list->rows[i].xact);
  if (full)
    cursor.end_page({list->rows[list->n - 1].xact, list->rows[list->n - 1].position});
  else
    cursor.end_pass();
}

bool rescan_claim(Snapshot snapshot, bool *more) {
  const int limit = 1000;
  RescanList list = {(RescanRow *)palloc(sizeof(RescanRow) * limit), 0, NULL, false};
  const dispatch::RescanPlace after = dispatcher().rescan_cursor.after();
  Datum values[] = {UInt64GetDatum(after.xact), Int64GetDatum(after.position), Int64GetDatum(limit)};

  OUTBOX_FAULT_POINT("rescan.begin");
  dispatcher().rescan_cursor.begin_page(late_commits_full_xid(snapshot->xmin));
  statement_read(&read_queue, values, snapshot, visit_entry, &list);
  rescan_look(&list, snapshot);
  end_page(&list, list.n == limit);
  if (list.n == 0)
    return false;
  ItemPointerData *done = (ItemPointerData *)palloc(sizeof(ItemPointerData) * list.n);
  int n_done = 0;
  for (int i = 0; i < list.n; i++)
    if (list.rows[i].fate == RescanRow::GONE || list.rows[i].fate == RescanRow::DONE)
      done[n_done++] = list.rows[i].ctid;
  Datum entries = tid_array(done, n_done);
  statement_write(&delete_entries, &entries, NULL, NULL);
  *more |= list.n == limit && n_done > 0;
  return list.wanted_again || list.n == limit;
}

/* Releases the keys of blockers that are neither in flight nor dead letters that block their keys. Returns true when
 * there were some. */
static bool release_unseen(Snapshot snapshot) {
  const std::span<const int64> unseen = blocked_keys().check_unseen();
  DeadLetter *states = (DeadLetter *)palloc(sizeof(DeadLetter) * Max(unseen.size(), 1));
  bool released = false;

  dead_letters_find(unseen.data(), states, (int)unseen.size(), snapshot);
  for (size_t i = 0; i < unseen.size(); i++)
    if (states[i] != DEAD_BLOCKS && in_flight().find(unseen[i]) == NULL) {
      blocked_keys().release(unseen[i]);
      released = true;
    }
  return released;
}

static bool visit_blocker(TupleTableSlot *slot, void *) {
  EventRow row;

  event_row_read(slot, &row);
  WorkerSink *sink = row.sink ? worker_sink_find(row.sink, row.sink_length) : NULL;
  if (sink)
    blocked_keys().check_seen(sink->oid, row.key_hash, row.position);
  return true;
}

bool rescan_check_blockers(Snapshot snapshot) {
  dispatch::BlockerCheck &check = dispatcher().blocker_check;
  const Moment now = dispatcher().round.now.moment;

  if (!check.wanted(blocked_keys(), now, setting_poll_interval))
    return false;
  OUTBOX_FAULT_POINT("rescan.check_blockers");
  check.begin(now);
  const std::span<const int64> blockers = blocked_keys().check_begin();
  if (blockers.empty())
    return check.end(blocked_keys(), false);
  Datum values[] = {int8_array(blockers.data(), (int)blockers.size())};
  statement_read(&read_positions, values, snapshot, visit_blocker, NULL);
  return check.end(blocked_keys(), release_unseen(snapshot));
}
