#include "claim.h"

#include "durable.h"
#include "event_row.h"
#include "flights.h"
#include "held_keys.h"
#include "lanes.h"
#include "late.h"
#include "maintenance.h"
#include "row_lock.h"
#include "sql.h"
#include "worker_sinks.h"

extern "C" {
#include "catalog/pg_type.h"
#include "utils/builtins.h"
#include "utils/memutils.h"
#include "utils/snapmgr.h"
}

/* A read sees at most so many rows: the worker stays responsive, and one transaction short. */
static const int READ_MAX = 10000;
static const int READ_MIN = 256;
static const int DRAINING_KEYS_MAX = 64;

#define PENDING_ROWS "SELECT " EVENT_ROW_COLUMNS " FROM outbox.events_pending WHERE "

static Statement read_main = {PENDING_ROWS "position > $1 ORDER BY position LIMIT $2", 2, {INT8OID, INT8OID}, NULL};
/* Row comparisons leave the planner one index, also when it plans on an empty table: it never walks the positions. */
static Statement read_late = {
    PENDING_ROWS "(xact, position) > ($1, $2) AND (xact, position) <= ($1, $3) ORDER BY xact, position LIMIT $4",
    4,
    {XID8OID, INT8OID, INT8OID, INT8OID},
    NULL};
static Statement read_held = {PENDING_ROWS
                              "held_by IS NOT NULL AND (held_by, position) > ($1, $2) "
                              "AND (held_by, position) < ($1 + 1, 0) ORDER BY held_by, position LIMIT $3",
                              3,
                              {INT8OID, INT8OID, INT8OID},
                              NULL};
static Statement read_due = {PENDING_ROWS "sink = $1 AND available_at IS NOT NULL AND held_by IS NULL "
                                          "AND (available_at, position) > ($2, $3) "
                                          "ORDER BY available_at, position LIMIT $4",
                             4,
                             {TEXTOID, TIMESTAMPTZOID, INT8OID, INT8OID},
                             NULL};
static Statement read_positions = {PENDING_ROWS "position = ANY ($1) ORDER BY position", 1, {INT8ARRAYOID}, NULL};
static Statement read_recalled = {"SELECT ctid, position FROM outbox.recalled LIMIT $1", 1, {INT8OID}, NULL};
static Statement forget_recalled = {"DELETE FROM outbox.recalled WHERE ctid = ANY ($1)", 1, {TIDARRAYOID}, NULL};
static Statement mark_held = {"UPDATE outbox.events_pending AS e SET held_by = nullif(h.held_by, 0) "
                              "FROM unnest($1, $2) AS h (place, held_by) WHERE e.ctid = h.place",
                              2,
                              {TIDARRAYOID, INT8ARRAYOID},
                              NULL};
static Statement read_failing = {
    PENDING_ROWS "available_at IS NOT NULL AND held_by IS NULL AND attempts > 0", 0, {}, NULL};
static Statement read_groups = {"SELECT DISTINCT ON (held_by) " EVENT_ROW_COLUMNS
                                " FROM outbox.events_pending WHERE held_by IS NOT NULL ORDER BY held_by, position",
                                0,
                                {},
                                NULL};

typedef enum Verdict {
  TAKE,
  PASS, /* not now, or not ours: somebody else, another stream or a later moment sees to it */
  HOLD, /* mark it as waiting behind its key's failing event */
  STOP  /* its sink has no room: the stream must come back to it */
} Verdict;

typedef enum Stream { MAIN, LATE, HELD, DUE, RECALLED } Stream;

/* A row to be marked as held. */
typedef struct Mark {
  int64 position;
  ItemPointerData ctid;
  int64 group; /* 0 = it waits no more */
  Oid sink;
  uint64 key_hash;
} Mark;

/* What one round of claiming gathers; in the round's memory context. */
typedef struct Round {
  MemoryContext context;
  TimestampTz now;
  int free_flights;
  Mark *marks;
  int n_marks, max_marks;
  int n_taken;
} Round;

static int64 my_origin = 0;
static Round round_;

/* Rows that somebody had locked: their position is remembered, their key waits. */
typedef struct BusyRow {
  int64 position;
  TimestampTz look_at;
  Oid sink;
  uint64 key_hash; /* 0 = holds up nobody */
} BusyRow;
static BusyRow *busy = NULL;
static int n_busy = 0, max_busy = 0;

static void remember_busy(int64 position, Oid sink, uint64 key_hash) {
  if (n_busy == max_busy) {
    max_busy = Max(64, max_busy * 2);
    busy = busy ? (BusyRow *)repalloc(busy, sizeof(BusyRow) * max_busy)
                : (BusyRow *)MemoryContextAlloc(TopMemoryContext, sizeof(BusyRow) * max_busy);
  }
  busy[n_busy].position = position;
  busy[n_busy].sink = sink;
  busy[n_busy].key_hash = key_hash;
  busy[n_busy++].look_at = TimestampTzPlusMilliseconds(round_.now, ROW_BUSY_PAUSE_MS);
}

/* A row that could not be marked holds up those behind it: its key drains no farther. */
static int64 first_busy(const HeldKey *key) {
  int64 first = PG_INT64_MAX;

  for (int i = 0; i < n_busy; i++)
    if (busy[i].key_hash == key->id.key_hash && busy[i].sink == key->id.sink)
      first = Min(first, busy[i].position);
  return first;
}

TimestampTz claim_next_moment(void) {
  return n_busy > 0 ? busy[0].look_at : DT_NOEND;
}

static void add_mark(const WorkerSink *sink, const EventRow *row, int64 group) {
  if (round_.n_marks == round_.max_marks) {
    round_.max_marks = Max(64, round_.max_marks * 2);
    round_.marks = round_.marks ? (Mark *)repalloc(round_.marks, sizeof(Mark) * round_.max_marks)
                                : (Mark *)MemoryContextAlloc(round_.context, sizeof(Mark) * round_.max_marks);
  }
  round_.marks[round_.n_marks++] = {row->position, row->ctid, group, sink->oid, row->key_hash};
}

static void add_to_batch(WorkerSink *sink, const EventRow *row) {
  MemoryContext previous = MemoryContextSwitchTo(round_.context);

  if (sink->n_batch == sink->max_batch) {
    sink->max_batch = Max(64, sink->max_batch * 2);
    sink->batch = sink->batch ? (ob_event *)repalloc_huge(sink->batch, sizeof(ob_event) * sink->max_batch)
                              : (ob_event *)palloc(sizeof(ob_event) * sink->max_batch);
    sink->batch_flights = sink->batch_flights
                              ? (Flight **)repalloc_huge(sink->batch_flights, sizeof(Flight *) * sink->max_batch)
                              : (Flight **)palloc(sizeof(Flight *) * sink->max_batch);
  }
  ob_event *event = &sink->batch[sink->n_batch];
  uint32 bytes = event_row_to_event(row, sink->ordered, event);
  MemoryContextSwitchTo(previous);

  Flight *flight = flight_new(row->position, bytes);
  flight->key_hash = event->key_hash;
  flight->sink = sink;
  flight->ctid = row->ctid;
  flight->attempts = row->attempts;
  flight->created_at = row->created_at;
  flight->claimed_at = round_.now;
  event->ticket = flight_ticket(flight);
  sink->batch_flights[sink->n_batch++] = flight;
  worker_sink_event_claimed(sink, bytes);
  round_.free_flights--;
  round_.n_taken++;
  durable_note(row->xmin);
}

/* Decides about one row, and takes or marks it. `*sink_out` is its sink, or NULL when no sink of ours is concerned.
 */
static Verdict judge(const EventRow *row, Stream stream, WorkerSink **sink_out) {
  WorkerSink *sink = row->sink ? worker_sink_find(row->sink, row->sink_length) : NULL;

  *sink_out = sink;
  if (row->sink == NULL && row->origin == my_origin)
    maintenance_saw_unrouted(row); /* enqueued before, committed after a sink appeared */
  if (sink == NULL || row->origin != my_origin || !lane_is_mine(row->key_hash, row->position))
    return PASS;
  if (stream == MAIN && (!sink->reading || row->position <= sink->cursor))
    return PASS;
  if (stream == RECALLED && row->position > sink->cursor)
    return PASS; /* the cursor will find it, in its place */
  if (flight_find(row->position))
    return PASS;
  if (row->available_at > round_.now) {
    sink->next_due = Min(sink->next_due, row->available_at);
    if (row->available_at <= sink->due_after) /* the clock went back */
      sink->due_after = row->available_at - 1;
    /* A failing event leads its key; a merely scheduled one neither leads nor waits. Only rows that are not held are
     * found when they are due. */
    if (sink->ordered && row->attempts > 0)
      held_key_hold(sink->oid, row->key_hash, row->position);
    else
      held_key_release(sink->oid, row->key_hash, row->position);
    if (row->held_by != 0)
      add_mark(sink, row, 0);
    return PASS;
  }
  if (sink->room <= 0 || round_.free_flights <= 0)
    return STOP;
  HeldKey *key = sink->ordered ? held_key_find(sink->oid, row->key_hash) : NULL;
  if (key && row->position > key->head && !(key->head == 0 && stream == HELD)) {
    if (row->held_by == key->group)
      return PASS;
    add_mark(sink, row, key->group);
    return HOLD;
  }
  add_to_batch(sink, row);
  return TAKE;
}

/* ---- the streams ------------------------------------------------------------------------------------------- */

typedef struct ReadState {
  Stream stream;
  WorkerSink *sink; /* of the stream, but for MAIN and RECALLED */
  int n_reading;    /* MAIN: sinks that still take part */
  int n_rows;
  int64 last_position;
  bool stopped;
  int64 before; /* HELD: only rows below this one */
} ReadState;

static bool visit_main(TupleTableSlot *slot, void *context) {
  ReadState *state = (ReadState *)context;
  WorkerSink *sink;
  EventRow row;

  event_row_read(slot, &row);
  state->n_rows++;
  state->last_position = row.position;
  Verdict verdict = judge(&row, MAIN, &sink);
  if (verdict == TAKE)
    sink->cursor = row.position;
  else if (verdict == STOP) {
    sink->reading = false;
    sink->starved = true;
    state->n_reading--;
  }
  return state->n_reading > 0;
}

/* What a late transaction wrote comes before what was enqueued after its commit. */
static bool may_read(const WorkerSink *sink) {
  return sink->room > 0 && sink->n_late == 0;
}

/* One read serves all sinks that have come equally far, which is all of them but those that lag. */
static bool read_from(int64 cursor, Snapshot snapshot) {
  ReadState state = {MAIN, NULL, 0, 0, cursor, false, 0};
  int n, room = 0;
  WorkerSink **sinks = worker_sinks_all(&n);

  for (int i = 0; i < n; i++) {
    sinks[i]->reading = may_read(sinks[i]) && sinks[i]->cursor == cursor;
    if (!sinks[i]->reading)
      continue;
    sinks[i]->starved = false;
    state.n_reading++;
    room += sinks[i]->room;
  }
  int limit = Min(Max(Min(room, round_.free_flights) * 2, READ_MIN), READ_MAX);
  Datum values[] = {Int64GetDatum(cursor), Int64GetDatum(limit)};
  statement_read(&read_main, values, snapshot, visit_main, &state);
  for (int i = 0; i < n; i++)
    if (sinks[i]->reading) {
      sinks[i]->cursor = state.last_position;
      sinks[i]->starved = state.n_rows == limit;
      sinks[i]->reading = false;
    }
  return state.n_rows == limit;
}

static bool claim_main(Snapshot snapshot) {
  int n;
  WorkerSink **sinks = worker_sinks_all(&n);
  int64 done = -1;
  bool more = false;

  /* Smallest cursor first; each distinct one once. */
  for (;;) {
    int64 next = PG_INT64_MAX;
    for (int i = 0; i < n; i++)
      if (may_read(sinks[i]) && sinks[i]->cursor > done)
        next = Min(next, sinks[i]->cursor);
    if (next == PG_INT64_MAX || round_.free_flights <= 0)
      return more;
    /* What a read leaves behind moves on, maybe to the next group's place: read on from there only next time. */
    int64 cursors_above = PG_INT64_MAX;
    for (int i = 0; i < n; i++)
      if (may_read(sinks[i]) && sinks[i]->cursor > next)
        cursors_above = Min(cursors_above, sinks[i]->cursor);
    more |= read_from(next, snapshot);
    if (cursors_above == PG_INT64_MAX)
      return more;
    done = cursors_above - 1;
  }
}

/* For the streams of one sink: the sink's own place moves with each row that needs no second look. */
static bool visit_of_sink(TupleTableSlot *slot, void *context) {
  ReadState *state = (ReadState *)context;
  WorkerSink *sink;
  EventRow row;

  event_row_read(slot, &row);
  state->n_rows++;
  if (state->stream == DUE && row.available_at > round_.now) {
    state->sink->next_due = row.available_at;
    state->stopped = true;
    return false;
  }
  if (state->stream == HELD && row.position >= state->before) {
    state->stopped = true;
    return false;
  }
  sink = row.sink ? worker_sink_find(row.sink, row.sink_length) : NULL;
  if (sink == state->sink && judge(&row, state->stream, &sink) == STOP) {
    state->stopped = true;
    state->sink->starved = true;
    if (state->stream == DUE)
      state->sink->next_due = row.available_at;
    return false;
  }
  state->last_position = row.position;
  if (state->stream == DUE) {
    state->sink->due_after = row.available_at;
    state->sink->due_after_position = row.position;
  }
  return true;
}

static void claim_late(WorkerSink *sink, Snapshot snapshot) {
  int i = 0;

  while (i < sink->n_late && sink->room > 0) {
    LateTransaction *late = &sink->late[i];
    ReadState state = {LATE, sink, 0, 0, late->after, false, 0};
    Datum values[] = {UInt64GetDatum(late->xid), Int64GetDatum(late->after), Int64GetDatum(late->upto),
                      Int64GetDatum(READ_MAX)};
    statement_read(&read_late, values, snapshot, visit_of_sink, &state);
    late->after = state.last_position;
    if (state.stopped || state.n_rows == READ_MAX)
      break; /* those after it may hold later events of its keys */
    i++;
  }
  sink->n_late -= i;
  memmove(sink->late, sink->late + i, sizeof(LateTransaction) * sink->n_late);
}

static void claim_draining(WorkerSink *sink, Snapshot snapshot) {
  HeldKeyId ids[DRAINING_KEYS_MAX];
  int n = held_keys_draining(sink->oid, ids, DRAINING_KEYS_MAX);

  for (int i = 0; i < n && sink->room > 0; i++) {
    HeldKey *key = held_key_find(sink->oid, ids[i].key_hash);
    /* After a beginning, rows of the key may lie unmarked before the marked ones: the cursor sees them first. */
    ReadState state = {HELD, sink, 0, 0, key->drained, false, Min(first_busy(key), sink->cursor + 1)};
    int limit = Min(sink->room + 1, READ_MAX);
    Datum values[] = {Int64GetDatum(key->group), Int64GetDatum(key->drained), Int64GetDatum(limit)};
    statement_read(&read_held, values, snapshot, visit_of_sink, &state);
    key->drained = state.last_position;
    if (!state.stopped && state.n_rows < limit && key->head == 0 && first_busy(key) == PG_INT64_MAX)
      held_key_forget(key); /* nothing is left behind it: new rows may come straight */
  }
}

static bool claim_due(WorkerSink *sink, Snapshot snapshot) {
  ReadState state = {DUE, sink, 0, 0, 0, false, 0};

  if (sink->next_due > round_.now || sink->room <= 0)
    return false;
  sink->next_due = DT_NOEND;
  int limit = Min(Max(sink->room + 1, READ_MIN), READ_MAX);
  Datum values[] = {PointerGetDatum(cstring_to_text(sink->name)), TimestampTzGetDatum(sink->due_after),
                    Int64GetDatum(sink->due_after_position), Int64GetDatum(limit)};
  statement_read(&read_due, values, snapshot, visit_of_sink, &state);
  if (state.stopped || state.n_rows < limit)
    return false;
  sink->next_due = sink->due_after;
  return true;
}

/* Positions to look at singly; each is marked with what became of it. */
typedef struct Recalled {
  int64 position;
  ItemPointerData ctid; /* in outbox.recalled */
  enum { RECALLED_GONE, RECALLED_KEEP, RECALLED_DONE } fate;
} Recalled;

typedef struct RecalledList {
  Recalled *items;
  int n;
  bool wanted_again; /* some had no room */
} RecalledList;

static bool visit_recalled_row(TupleTableSlot *slot, void *context) {
  RecalledList *list = (RecalledList *)context;
  WorkerSink *sink;
  EventRow row;

  event_row_read(slot, &row);
  /* It may have led a key that it has left since. */
  sink = row.sink ? worker_sink_find(row.sink, row.sink_length) : NULL;
  HeldKey *key = sink ? held_key_find(sink->oid, row.key_hash) : NULL;
  if (key == NULL || key->head != row.position)
    held_key_release_position(row.position);
  Verdict verdict = judge(&row, RECALLED, &sink);
  if (verdict == STOP)
    sink->starved = list->wanted_again = true;
  bool mine = lane_is_mine(row.key_hash, row.position);
  for (int i = 0; i < list->n; i++)
    if (list->items[i].position == row.position)
      list->items[i].fate = verdict == STOP || !mine ? Recalled::RECALLED_KEEP : Recalled::RECALLED_DONE;
  return true;
}

static void look_at_positions(RecalledList *list, Snapshot snapshot) {
  int64 *positions = (int64 *)palloc(sizeof(int64) * Max(list->n, 1));

  for (int i = 0; i < list->n; i++)
    positions[i] = list->items[i].position;
  Datum values[] = {int8_array(positions, list->n)};
  statement_read(&read_positions, values, snapshot, visit_recalled_row, list);
  for (int i = 0; i < list->n; i++)
    if (list->items[i].fate == Recalled::RECALLED_GONE)
      held_key_release_position(list->items[i].position); /* a person deleted it: its key goes on */
}

static bool visit_recalled(TupleTableSlot *slot, void *context) {
  RecalledList *list = (RecalledList *)context;
  Recalled *item = &list->items[list->n++];

  item->ctid = *(ItemPointer)DatumGetPointer(slot->tts_values[0]);
  item->position = DatumGetInt64(slot->tts_values[1]);
  item->fate = Recalled::RECALLED_GONE;
  return true;
}

/* True when some were left for the next round. */
static bool claim_recalled(Snapshot snapshot) {
  const int limit = 1000;
  RecalledList list = {(Recalled *)palloc(sizeof(Recalled) * limit), 0, false};
  Datum values[] = {Int64GetDatum(limit)};

  statement_read(&read_recalled, values, snapshot, visit_recalled, &list);
  if (list.n == 0)
    return false;
  look_at_positions(&list, snapshot);
  ItemPointerData *done = (ItemPointerData *)palloc(sizeof(ItemPointerData) * list.n);
  int n_done = 0;
  for (int i = 0; i < list.n; i++)
    if (list.items[i].fate != Recalled::RECALLED_KEEP)
      done[n_done++] = list.items[i].ctid;
  Datum place = tid_array(done, n_done);
  statement_write(&forget_recalled, &place, NULL, NULL);
  return list.wanted_again || (list.n == limit && n_done > 0);
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

/* A head can leave unseen: deleted in flight, recalled to another worker, truncated. */
static void check_heads(Snapshot snapshot) {
  int n;
  int64 *heads = held_keys_heads(&n);

  if (n == 0)
    return;
  Datum values[] = {int8_array(heads, n)};
  statement_read(&read_positions, values, snapshot, visit_head, NULL);
  held_keys_release_unseen();
}

static void claim_busy(Snapshot snapshot) {
  RecalledList list = {NULL, 0, false};
  int kept = 0;

  if (n_busy == 0 || busy[0].look_at > round_.now)
    return;
  list.items = (Recalled *)palloc0(sizeof(Recalled) * n_busy);
  BusyRow *looked = (BusyRow *)palloc(sizeof(BusyRow) * n_busy);
  for (int i = 0; i < n_busy; i++) {
    if (busy[i].look_at <= round_.now)
      looked[list.n++] = busy[i];
    else
      busy[kept++] = busy[i];
  }
  n_busy = kept;
  for (int i = 0; i < list.n; i++)
    list.items[i].position = looked[i].position; /* its fate: gone, until it is seen */
  look_at_positions(&list, snapshot);
  for (int i = 0; i < list.n; i++)
    if (list.items[i].fate == Recalled::RECALLED_KEEP)
      remember_busy(looked[i].position, looked[i].sink, looked[i].key_hash);
}

/* ---- locking ----------------------------------------------------------------------------------------------- */

/* Takes a claimed event out of the round: its flight ends before it began. */
static void drop_flight(Flight *flight) {
  worker_sink_event_returned(flight->sink, flight->bytes);
  flight->sink->room++;
  flight_free(flight);
}

/* Keeps in a batch what may fly: rows that were locked, and whose key nobody else holds meanwhile. */
static void prune_batch(WorkerSink *sink) {
  int kept = 0;

  for (int i = 0; i < sink->n_batch; i++) {
    Flight *flight = sink->batch_flights[i];
    if (flight == NULL)
      continue;
    HeldKey *key = held_key_find(sink->oid, flight->key_hash);
    if (key && key->head != 0 && key->head < flight->position) {
      /* An earlier row of its key is busy: it will be seen again, and marked, from the cursor. */
      int64 position = flight->position;
      drop_flight(flight);
      worker_sink_rewind(sink, position);
      continue;
    }
    sink->batch[kept] = sink->batch[i];
    sink->batch_flights[kept++] = flight;
  }
  sink->n_batch = kept;
}

static void lock_and_mark(void) {
  int n, n_locks = 0, n_marked = 0;
  WorkerSink **sinks = worker_sinks_all(&n);
  RowLock *locks = (RowLock *)MemoryContextAllocHuge(CurrentMemoryContext,
                                                     sizeof(RowLock) * (round_.n_taken + round_.n_marks + 1));
  bool pruned = false;

  for (int i = 0; i < n; i++)
    for (int j = 0; j < sinks[i]->n_batch; j++) {
      Flight *flight = sinks[i]->batch_flights[j];
      locks[n_locks++] = {flight->position, flight->ctid, ROW_GONE, &sinks[i]->batch_flights[j]};
    }
  for (int i = 0; i < round_.n_marks; i++)
    locks[n_locks++] = {round_.marks[i].position, round_.marks[i].ctid, ROW_GONE, &round_.marks[i]};
  row_lock(locks, n_locks, false);

  ItemPointerData *places = (ItemPointerData *)palloc(sizeof(ItemPointerData) * (round_.n_marks + 1));
  int64 *groups = (int64 *)palloc(sizeof(int64) * (round_.n_marks + 1));
  for (int i = 0; i < n_locks; i++) {
    RowLock *lock = &locks[i];
    Mark *mark = (Mark *)lock->owner;
    if (round_.n_marks > 0 && mark >= round_.marks && mark < round_.marks + round_.n_marks) {
      if (lock->result == ROW_BUSY)
        remember_busy(lock->position, mark->sink, mark->key_hash);
      if (lock->result == ROW_LOCKED) {
        places[n_marked] = lock->ctid;
        groups[n_marked++] = mark->group;
        if (mark->group != 0)
          held_key_marked(mark->sink, mark->key_hash, mark->group, mark->position);
      }
      continue;
    }
    if (lock->result == ROW_LOCKED)
      continue;
    Flight **place = (Flight **)lock->owner;
    Flight *flight = *place;
    *place = NULL;
    pruned = true;
    if (lock->result == ROW_BUSY) {
      held_key_hold(flight->sink->oid, flight->key_hash, flight->position);
      remember_busy(flight->position, InvalidOid, 0); /* it leads its key */
    } else {
      held_key_release(flight->sink->oid, flight->key_hash, flight->position);
    }
    drop_flight(flight);
  }
  for (int i = 0; i < n && pruned; i++)
    prune_batch(sinks[i]);

  if (n_marked > 0) {
    Datum values[] = {tid_array(places, n_marked), int8_array(groups, n_marked)};
    statement_write(&mark_held, values, NULL, NULL);
  }
}

/* ---- the round --------------------------------------------------------------------------------------------- */

bool claim_events(TimestampTz now, bool *look_for_recalled) {
  int n;
  WorkerSink **sinks = worker_sinks_all(&n);
  bool more = false;

  memset((void *)&round_, 0, sizeof(round_));
  round_.context = CurrentMemoryContext;
  round_.now = now;
  round_.free_flights = flights_free();

  SPI_connect();
  /* One snapshot for all reads of the round: the late ones and the cursor's must meet without a gap. */
  Snapshot snapshot = RegisterSnapshot(GetLatestSnapshot());
  late_find(snapshot);
  for (int i = 0; i < n; i++) {
    sinks[i]->cursor_before = sinks[i]->cursor;
    if (sinks[i]->room <= 0)
      continue;
    claim_late(sinks[i], snapshot);
    more |= sinks[i]->n_late > 0 && sinks[i]->room > 0; /* a long one: the cursor waits for it */
    claim_draining(sinks[i], snapshot);
    more |= claim_due(sinks[i], snapshot);
  }
  claim_busy(snapshot);
  if (*look_for_recalled) {
    check_heads(snapshot);
    *look_for_recalled = claim_recalled(snapshot);
  }
  more |= claim_main(snapshot);
  for (int i = 0; i < n; i++) /* what the cursor has passed may drain now */
    more |= sinks[i]->room > 0 && sinks[i]->cursor > sinks[i]->cursor_before && held_keys_any_draining();
  if (round_.n_taken + round_.n_marks > 0)
    lock_and_mark();
  UnregisterSnapshot(snapshot);
  SPI_finish();
  return more;
}

void claim_return(Flight *flight) {
  WorkerSink *sink = flight->sink;
  HeldKey *key = held_key_find(sink->oid, flight->key_hash);
  int64 position = flight->position;

  if (key && key->head == 0)
    key->drained = Min(key->drained, position - 1);
  worker_sink_event_returned(sink, flight->bytes);
  flight_free(flight);
  worker_sink_rewind(sink, position);
}

void claim_submit(void) {
  int n;
  WorkerSink **sinks = worker_sinks_all(&n);

  for (int i = 0; i < n; i++) {
    WorkerSink *sink = sinks[i];
    if (sink->n_batch == 0)
      continue;
    int taken = sink->handle && !sink->closing ? (int)ob_submit(sink->handle, sink->batch, sink->n_batch) : 0;
    for (int j = 0; j < sink->n_batch; j++) {
      if (j < taken)
        sink->batch_flights[j]->state = FLIGHT_IN_AIR;
      else
        claim_return(sink->batch_flights[j]);
    }
    sink->n_batch = 0;
  }
}

void claim_give_back(void) {
  int n;
  WorkerSink **sinks = worker_sinks_all(&n);

  for (int i = 0; i < n; i++) {
    for (int j = 0; j < sinks[i]->n_batch; j++)
      if (sinks[i]->batch_flights[j])
        claim_return(sinks[i]->batch_flights[j]);
    sinks[i]->n_batch = 0;
    worker_sink_restart(sinks[i]);
  }
  held_keys_restart();
}

/* ---- the beginning ----------------------------------------------------------------------------------------- */

static bool visit_failing(TupleTableSlot *slot, void *) {
  EventRow row;

  event_row_read(slot, &row);
  WorkerSink *sink = row.sink ? worker_sink_find(row.sink, row.sink_length) : NULL;
  if (sink == NULL || row.origin != my_origin || !lane_is_mine(row.key_hash, row.position))
    return true;
  if (sink->ordered)
    held_key_hold(sink->oid, row.key_hash, row.position);
  return true;
}

static bool visit_group(TupleTableSlot *slot, void *) {
  EventRow row;

  event_row_read(slot, &row);
  WorkerSink *sink = row.sink ? worker_sink_find(row.sink, row.sink_length) : NULL;
  if (sink && row.origin == my_origin && sink->ordered && lane_is_mine(row.key_hash, row.position))
    held_key_drain(sink->oid, row.key_hash, row.held_by);
  return true;
}

void claim_init(int64 origin) {
  my_origin = origin;
  SPI_connect();
  statement_read(&read_failing, NULL, InvalidSnapshot, visit_failing, NULL);
  statement_read(&read_groups, NULL, InvalidSnapshot, visit_group, NULL);
  SPI_finish();
}
