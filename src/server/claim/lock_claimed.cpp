/*
 * lock_claimed.cpp: checks and locks the rows that a round has chosen. Rows that are to be marked are locked. Rows
 * that are to be sent are only checked: a lock would end with the transaction, before the event is sent, and would
 * cost a WAL record and a written page for each row. test/fault/test_skip_locked.py shows that the claimed rows are
 * those that FOR UPDATE SKIP LOCKED would return.
 */
#include "server/claim/claim_table.h"

#include "server/claim/batches.h"
#include "server/inflight/events_in_flight.h"
#include "server/storage/row_lock.h"
#include "server/storage/sql.h"
#include "server/storage/unmodified_rows.h"

extern "C" {
#include "catalog/pg_type.h"
}

using dispatch::RowLocked;

static Statement update_marks = make_statement<TIDARRAYOID, INT8ARRAYOID>(
    "UPDATE outbox.events_pending AS e SET blocked_by = nullif(h.blocked_by, 0) "
    "FROM unnest($1, $2) AS h (ctid, blocked_by) WHERE e.ctid = h.ctid");

void ClaimTable::close_ranks(dispatch::RoundSink &sink) {
  batch_close_ranks(static_cast<WorkerSink *>(&sink));
}

static RowLock *make_locks(size_t n) {
  return (RowLock *)MemoryContextAllocHuge(CurrentMemoryContext, sizeof(RowLock) * (n + 1));
}

static RowLocked result_of(const RowLock *lock) {
  return lock->result == ROW_LOCKED ? RowLocked::LOCKED
         : lock->result == ROW_BUSY ? RowLocked::BUSY
                                    : RowLocked::GONE;
}

void ClaimTable::lock(
    std::span<const dispatch::Mark> marks, dispatch::FunctionRef<void, InFlightEvent **, RowLocked> visit_event,
    dispatch::FunctionRef<void, const dispatch::Mark &, RowLocked, const dispatch::RowHandle &> visit_mark) {
  RowLock *events = make_locks(dispatcher().round.n_claimed), *of_marks = make_locks(marks.size());
  int n = 0, n_marks = 0;

  for (WorkerSink *sink : worker_sinks_all())
    for (InFlightEvent *&event : std::span(sink->batch_events, sink->n_batch))
      events[n++] = {event->position, ctid_of(&event->row), ROW_GONE, &event, event->row.writer, InvalidOid};
  const int n_free = heap_find_unmodified(events, n);
  for (int i = 0; i < n; i++)
    (*(InFlightEvent **)events[i].owner)->row.table = events[i].file;
  row_lock(events + n_free, n - n_free, NULL);
  for (const dispatch::Mark &mark : marks)
    of_marks[n_marks++] = {mark.position, ctid_of(&mark.row), ROW_GONE, (void *)&mark};
  row_lock(of_marks, n_marks, NULL);
  for (int i = 0; i < n_marks; i++)
    visit_mark(*(const dispatch::Mark *)of_marks[i].owner, result_of(&of_marks[i]), handle_of(&of_marks[i].ctid));
  for (int i = n_free; i < n; i++)
    visit_event((InFlightEvent **)events[i].owner, result_of(&events[i]));
}

void ClaimTable::write_marks(std::span<const dispatch::MarkToWrite> marks) {
  ItemPointerData *ctids = palloc_array(ItemPointerData, marks.size());
  int64 *groups = (int64 *)palloc(sizeof(int64) * marks.size());

  for (size_t i = 0; i < marks.size(); i++) {
    ctids[i] = ctid_of(&marks[i].handle);
    groups[i] = marks[i].group;
  }
  Datum values[] = {tid_array(ctids, (int)marks.size()), int8_array(groups, (int)marks.size())};
  statement_write(&update_marks, values, NULL, NULL);
}
