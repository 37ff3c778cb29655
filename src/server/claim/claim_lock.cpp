/*
 * claim_lock.cpp: rows that another session has locked or changed are left out, without waiting. Rows that are to be
 * marked are locked. Rows that are to be sent are only checked: a lock would end with the transaction, before the
 * event is sent, and would cost a WAL record and a written page for each row.
 * test/fault/test_skip_locked.py shows that the claimed rows are those that FOR UPDATE SKIP LOCKED would return.
 */
#include "server/claim/claim_lock.h"

#include "server/base/fault_point.h"
#include "server/inflight/blocking.h"
#include "server/inflight/decision_log.h"
#include "server/inflight/in_flight.h"
#include "server/sinks/dispatcher.h"
#include "server/sinks/sink_cursor.h"
#include "server/sinks/worker_sinks.h"
#include "server/storage/row_lock.h"
#include "server/storage/sql.h"
#include "server/storage/unmodified_rows.h"

extern "C" {
#include "catalog/pg_type.h"
#include "utils/builtins.h"
}

static Statement write_marks = make_statement<TIDARRAYOID, INT8ARRAYOID>(
    "UPDATE outbox.events_pending AS e SET blocked_by = nullif(h.blocked_by, 0) "
    "FROM unnest($1, $2) AS h (place, blocked_by) WHERE e.ctid = h.place");

/* Removes a claimed event from its batch. Writing to the log may raise an error (a cancel): then the event is still
 * in the batch, from which claim_give_back() returns it. */
static void drop_event(InFlightEvent **place, const char *reason) {
  InFlightEvent *event = *place;
  WorkerSink *sink = sink_of(event);

  decision_log(EVENT_RETURNED, event->position, sink->name, reason, 0);
  *place = NULL;
  worker_sink_event_returned(sink, event->bytes);
  sink->cursor->event_dropped();
  in_flight().give_back(event);
}

/* Keeps in a batch the events that were not dropped and whose key no earlier event blocks by now. */
static void prune_batch(WorkerSink *sink) {
  int kept = 0;

  for (int i = 0; i < sink->n_batch; i++) {
    InFlightEvent **place = &sink->batch_events[i];
    InFlightEvent *event = *place;
    if (event == NULL)
      continue;
    if (blocked_keys().find_before(sink->oid, event->key_hash, event->position)) {
      /* An earlier row of its key is locked or redriven: the main scan comes to this row again, and marks it. */
      OUTBOX_FAULT_POINT("lock.prune");
      int64 position = event->position;
      drop_event(place, "an earlier event of its key leads now");
      sink_cursor_rewind(sink, position);
      continue;
    }
    sink->batch[kept] = sink->batch[i];
    *place = NULL; /* no event is in the batch twice, if an error comes before its end */
    sink->batch_events[kept++] = event;
  }
  sink->n_batch = kept;
}

void claim_lock_and_mark(void) {
  int n, n_locks = 0, n_marked = 0;
  WorkerSink **sinks = worker_sinks_all(&n);
  const std::span<const dispatch::Mark> marks = dispatcher().marks.all();
  RowLock *locks = (RowLock *)MemoryContextAllocHuge(
      CurrentMemoryContext, sizeof(RowLock) * (dispatcher().round.n_claimed + marks.size() + 1));
  bool pruned = dispatcher().round.reordered;
  dispatch::LockedRows &locked = dispatcher().locked_rows;

  for (int i = 0; i < n; i++)
    for (int j = 0; j < sinks[i]->n_batch; j++) {
      InFlightEvent *event = sinks[i]->batch_events[j];
      locks[n_locks++] = {event->position,   place_of(&event->row),
                          ROW_GONE,          &sinks[i]->batch_events[j],
                          event->row.writer, InvalidOid};
    }
  int n_free = heap_find_unmodified(locks, n_locks);
  for (int i = 0; i < n_locks; i++)
    (*(InFlightEvent **)locks[i].owner)->row.table = locks[i].file;
  locks += n_free;
  n_locks -= n_free;
  for (const dispatch::Mark &mark : marks)
    locks[n_locks++] = {mark.position, place_of(&mark.row), ROW_GONE, (void *)&mark};
  row_lock(locks, n_locks, NULL);

  ItemPointerData *places = (ItemPointerData *)palloc(sizeof(ItemPointerData) * (marks.size() + 1));
  int64 *groups = (int64 *)palloc(sizeof(int64) * (marks.size() + 1));
  for (int i = 0; i < n_locks; i++) {
    RowLock *lock = &locks[i];
    const dispatch::Mark *mark = (const dispatch::Mark *)lock->owner;
    if (mark >= marks.data() && mark < marks.data() + marks.size()) {
      if (lock->result == ROW_BUSY)
        require_memory(locked.add(lock->position, mark->sink, mark->key_hash));
      if (lock->result == ROW_LOCKED && worker_sink_of(mark->sink)) {
        places[n_marked] = lock->ctid;
        groups[n_marked++] = mark->group;
        if (mark->group != 0)
          key_marked(mark->sink, mark->key_hash, mark->group, mark->position);
      }
      continue;
    }
    if (lock->result == ROW_LOCKED)
      continue;
    InFlightEvent **place = (InFlightEvent **)lock->owner;
    InFlightEvent *event = *place;
    pruned = dispatcher().round.dropped = true;
    if (lock->result == ROW_BUSY) {
      OUTBOX_FAULT_POINT("lock.busy_row");
      key_block(sink_of(event)->oid, event->key_hash, event->position);
      /* an earlier event of the key may become its blocker */
      require_memory(locked.add(event->position, sink_of(event)->oid, event->key_hash));
    } else {
      blocked_keys().release(sink_of(event)->oid, event->key_hash, event->position);
    }
    drop_event(place, lock->result == ROW_BUSY ? "another session has locked it" : "its row has changed");
  }
  for (int i = 0; i < n && pruned; i++)
    prune_batch(sinks[i]);

  if (n_marked > 0) {
    Datum values[] = {tid_array(places, n_marked), int8_array(groups, n_marked)};
    OUTBOX_FAULT_POINT("lock.before_marks");
    statement_write(&write_marks, values, NULL, NULL);
  }
}
