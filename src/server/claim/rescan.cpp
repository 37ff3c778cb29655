/*
 * rescan.cpp: rows that came back behind the cursors, and heads that left.
 * A full page of rows is followed by the next at once: outbox.adopt() of a million events for a paused sink took
 * one poll per 1,000 otherwise.
 */
#include "server/claim/rescan.h"

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

static Statement read_positions = {PENDING_ROWS "position = ANY ($1) ORDER BY position", 1, {INT8ARRAYOID}, NULL};
static Statement read_recalled = {
    "SELECT ctid, position, xact FROM outbox_internal.rescan_queue WHERE (xact, position) > ($1, $2) "
    "ORDER BY xact, position LIMIT $3",
    3,
    {XID8OID, INT8OID, INT8OID},
    NULL};
static Statement forget_recalled = {
    "DELETE FROM outbox_internal.rescan_queue WHERE ctid = ANY ($1)", 1, {TIDARRAYOID}, NULL};

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

static bool visit_recalled_row(TupleTableSlot *slot, void *context) {
  RescanList *list = (RescanList *)context;
  WorkerSink *sink;
  EventRow row;

  event_row_read(slot, &row);
  sink = row.sink ? worker_sink_find(row.sink, row.sink_length) : NULL;
  blocked_keys().row_seen(sink ? sink->oid : InvalidOid, row.key_hash, row.position);
  const RowVerdict verdict = classify_row(&row, RowScan::RESCAN, &sink);
  if (verdict == RowVerdict::STOP)
    sink->starved = list->wanted_again = true;
  bool mine = shard_is_mine(sink, dispatch::shard_of(row.key_hash, row.position));
  /* A position may stand there more than once. */
  for (int i = first_of(list, row.position); i < list->n && list->by_position[i]->position == row.position; i++)
    list->by_position[i]->fate = !mine                         ? RescanRow::OTHERS
                                 : verdict == RowVerdict::STOP ? RescanRow::KEEP
                                                               : RescanRow::DONE;
  return true;
}

/* No pending row: a dead letter, which may hold its key, or deleted by a user, and its key goes on. */
static void look_at_gone(RescanList *list) {
  int64 *gone = (int64 *)palloc(sizeof(int64) * Max(list->n, 1));
  DeadLetter *states = (DeadLetter *)palloc(sizeof(DeadLetter) * Max(list->n, 1));
  int n = 0, released = 0;

  for (int i = 0; i < list->n; i++)
    if (list->rows[i].fate == RescanRow::GONE)
      gone[n++] = list->rows[i].position;
  dead_letters_look(gone, states, n);
  n = 0;
  for (int i = 0; i < list->n; i++) {
    if (list->rows[i].fate != RescanRow::GONE)
      continue;
    DeadLetter state = states[n++];
    if (state == DEAD_ELSEWHERE)
      list->rows[i].fate = RescanRow::OTHERS;
    else if (state != DEAD_HOLDS)
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
  statement_read(&read_positions, values, snapshot, visit_recalled_row, list);
  look_at_gone(list);
}

static bool visit_recalled(TupleTableSlot *slot, void *context) {
  RescanList *list = (RescanList *)context;
  RescanRow *item = &list->rows[list->n++];

  item->ctid = *(ItemPointer)DatumGetPointer(slot->tts_values[0]);
  item->position = DatumGetInt64(slot->tts_values[1]);
  item->xact = DatumGetUInt64(slot->tts_values[2]);
  item->fate = RescanRow::GONE;
  return true;
}

/* How far outbox_internal.rescan_queue is read. It is read in pages; when all are through, the next time begins with
 * the oldest transaction that was running then, or that wrote a row which had no room. */
typedef struct RecalledPlace {
  uint64 xact; /* this page begins after here */
  int64 position;
  uint64 next; /* where the next time begins */
} RecalledPlace;
static RecalledPlace place = {0, 0, PG_UINT64_MAX}, place_before = {0, 0, PG_UINT64_MAX};

void rescan_restart(void) {
  place = place_before = {0, 0, PG_UINT64_MAX};
}

void rescan_next_place(uint64 *xact, int64 *position) {
  *xact = place.xact;
  *position = place.position;
}

void rescan_give_back(void) {
  place = place_before;
}

static void next_page(const RescanList *list, bool full) {
  for (int i = 0; i < list->n; i++)
    if (list->rows[i].fate == RescanRow::KEEP)
      place.next = Min(place.next, list->rows[i].xact);
  if (full)
    place = {list->rows[list->n - 1].xact, list->rows[list->n - 1].position, place.next};
  else
    place = {place.next - 1, PG_INT64_MAX, PG_UINT64_MAX};
}

bool rescan_claim(Snapshot snapshot, bool *more) {
  const int limit = 1000;
  RescanList list = {(RescanRow *)palloc(sizeof(RescanRow) * limit), 0, NULL, false};
  Datum values[] = {UInt64GetDatum(place.xact), Int64GetDatum(place.position), Int64GetDatum(limit)};

  place_before = place;
  place.next = Min(place.next, late_commits_full_xid(snapshot->xmin));
  statement_read(&read_recalled, values, snapshot, visit_recalled, &list);
  rescan_look(&list, snapshot);
  next_page(&list, list.n == limit);
  if (list.n == 0)
    return false;
  ItemPointerData *done = (ItemPointerData *)palloc(sizeof(ItemPointerData) * list.n);
  int n_done = 0;
  for (int i = 0; i < list.n; i++)
    if (list.rows[i].fate == RescanRow::GONE || list.rows[i].fate == RescanRow::DONE)
      done[n_done++] = list.rows[i].ctid;
  Datum places = tid_array(done, n_done);
  statement_write(&forget_recalled, &places, NULL, NULL);
  *more |= list.n == limit && n_done > 0; /* a million of them must not take a poll for each page */
  return list.wanted_again || list.n == limit;
}

static bool check_dead_heads(void) {
  const std::span<const int64> unseen = blocked_keys().check_unseen();
  DeadLetter *states = (DeadLetter *)palloc(sizeof(DeadLetter) * Max(unseen.size(), 1));
  bool released = false;

  dead_letters_look(unseen.data(), states, (int)unseen.size());
  for (size_t i = 0; i < unseen.size(); i++)
    if (states[i] != DEAD_HOLDS && in_flight().find(unseen[i]) == NULL) {
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
  static Moment checked_at = MOMENT_NONE;
  static bool had_left = false;

  if (!blocked_keys().checked_at_once() && !had_left &&
      !moment_is_past(checked_at, dispatcher().round.now.moment, setting_poll_interval))
    return false; /* what a user changes is named by outbox_internal.rescan_queue: that comes often */
  checked_at = dispatcher().round.now.moment;
  const std::span<const int64> blockers = blocked_keys().check_begin();
  if (blockers.empty())
    return had_left = false;
  Datum values[] = {int8_array(blockers.data(), (int)blockers.size())};
  statement_read(&read_positions, values, snapshot, visit_blocker, NULL);
  had_left = check_dead_heads();
  return had_left && !blocked_keys().checked_at_once();
}
