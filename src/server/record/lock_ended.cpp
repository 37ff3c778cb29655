/* lock_ended.cpp: locks the rows of ended events, or deletes them at once. */
#include "server/record/record_table.h"

#include "server/event/key_hash.h"
#include "server/inflight/events_in_flight.h"
#include "server/inflight/sink_log.h"
#include "server/storage/row_lock.h"
#include "server/storage/sql.h"
#include "server/storage/unmodified_rows.h"

using dispatch::FoundRow;

static uint64 key_hash_in(TupleTableSlot *row, TupleDesc desc) {
  static AttrNumber column = InvalidAttrNumber;
  bool is_null;

  Datum value = slot_getattr(row, column_number(desc, "partition_key", &column), &is_null);
  text *key = is_null ? NULL : DatumGetTextPP(value);
  return key ? key_hash_of(VARDATA_ANY(key), VARSIZE_ANY_EXHDR(key)) : 0;
}

static bool is_still_its_row(TupleTableSlot *row, TupleDesc desc, const RowLock *lock) {
  static AttrNumber column = InvalidAttrNumber;
  InFlightEvent *event = (InFlightEvent *)lock->owner;
  bool is_null;

  Datum name = slot_getattr(row, column_number(desc, "sink", &column), &is_null);
  text *now = is_null ? NULL : DatumGetTextPP(name);
  WorkerSink *sink = now ? worker_sink_find(VARDATA_ANY(now), VARSIZE_ANY_EXHDR(now)) : NULL;
  if (event->outcome == Outcome::SENT)
    return dispatch::still_its_row(event, sink, 0);
  sink_log_see_failing(event, row, desc);
  return dispatch::still_its_row(event, sink, key_hash_in(row, desc));
}

static RowLock *locks_of(std::span<InFlightEvent *const> events) {
  RowLock *locks = palloc_array(RowLock, Max(events.size(), 1));
  int n = 0;

  for (InFlightEvent *event : events)
    locks[n++] = {event->position, ctid_of(&event->row), ROW_GONE, event, event->row.writer, event->row.table};
  return locks;
}

size_t RecordTable::delete_unmodified(std::span<InFlightEvent *> events) {
  RowLock *locks = locks_of(events);
  const int deleted = heap_delete_unmodified(locks, (int)events.size());

  for (size_t i = 0; i < events.size(); i++)
    events[i] = (InFlightEvent *)locks[i].owner;
  return (size_t)deleted;
}

void RecordTable::lock_ended(
    std::span<InFlightEvent *const> events,
    dispatch::FunctionRef<void, InFlightEvent *, FoundRow, const dispatch::RowHandle &> visit) {
  RowLock *locks = locks_of(events);

  row_lock(locks, (int)events.size(), is_still_its_row);
  for (size_t i = 0; i < events.size(); i++) {
    const RowLock *lock = &locks[i];
    visit((InFlightEvent *)lock->owner,
          lock->result == ROW_LOCKED ? FoundRow::OURS
          : lock->result == ROW_GONE ? FoundRow::GONE
                                     : FoundRow::LOCKED,
          handle_of(&lock->ctid));
  }
}
