/*
 * record.cpp: one transaction records many events. It locks their rows, asks what becomes of each
 * (dispatch/recording.h), and writes all of one kind at once. Own commits are asynchronous: what a crash forgets is
 * sent again, which at-least-once allows.
 */
#include "server/record/record.h"

#include "server/base/fault_point.h"
#include "server/base/is_worker.h"
#include "server/event/key_hash.h"
#include "server/inflight/decision_log.h"
#include "server/inflight/in_flight.h"
#include "server/inflight/sink_log.h"
#include "server/record/out_of_order.h"
#include "server/record/record_rows.h"
#include "server/record/sent_day.h"
#include "server/sinks/sink_cursor.h"
#include "server/sinks/worker_sinks.h"
#include "server/sinks/worker_stops.h"
#include "server/storage/row_lock.h"
#include "server/storage/sql.h"
#include "server/storage/unmodified_rows.h"

#include <algorithm>

extern "C" {
#include "access/xact.h"
#include "access/xlog.h"
}

using dispatch::Disposition;
using dispatch::FoundRow;
using dispatch::Retention;

static bool has_other_key(TupleTableSlot *row, TupleDesc desc, const InFlightEvent *event) {
  static AttrNumber column = InvalidAttrNumber;
  bool is_null;

  if (event->outcome == Outcome::SENT)
    return false;
  Datum key = slot_getattr(row, column_number(desc, "partition_key", &column), &is_null);
  text *now = is_null ? NULL : DatumGetTextPP(key);
  uint64 key_hash = now ? key_hash_of(VARDATA_ANY(now), VARSIZE_ANY_EXHDR(now)) : 0;
  return dispatch::has_other_key(event, key_hash, sink_of(event)->common.ordered);
}

/* A user may have given the event to another sink or another key while it was in flight: then it is still to be sent
 * there. */
static bool is_for_its_sink(TupleTableSlot *row, TupleDesc desc, const RowLock *lock) {
  static AttrNumber column = InvalidAttrNumber;
  InFlightEvent *event = (InFlightEvent *)lock->owner;
  bool is_null;

  Datum name = slot_getattr(row, column_number(desc, "sink", &column), &is_null);
  text *now = is_null ? NULL : DatumGetTextPP(name);
  WorkerSink *sink = now ? worker_sink_find(VARDATA_ANY(now), VARSIZE_ANY_EXHDR(now)) : NULL;
  bool is_ours = sink == sink_of(event) && !has_other_key(row, desc, event);
  if (sink && !is_ours)
    event->given_to = sink->oid;
  return is_ours;
}

static bool is_failing_for_its_sink(TupleTableSlot *row, TupleDesc desc, const RowLock *lock) {
  sink_log_see_failing((const InFlightEvent *)lock->owner, row, desc);
  return is_for_its_sink(row, desc, lock);
}

static RowLock lock_of(InFlightEvent *event) {
  return {event->position, place_of(&event->row), ROW_GONE, event, event->row.writer, event->row.table};
}

static InFlightEvent *event_of(const RowLock *lock) {
  return (InFlightEvent *)lock->owner;
}

static FoundRow found_row(const RowLock *lock) {
  return lock->result == ROW_LOCKED ? FoundRow::OURS : lock->result == ROW_GONE ? FoundRow::GONE : FoundRow::LOCKED;
}

static Retention retention_of(const InFlightEvent *event, Now now) {
  return event->outcome == Outcome::SENT && sink_of(event)->common.retention_ms > 0 ? sent_day_retention(now)
                                                                                    : Retention::NONE;
}

/* Dead letters before retries: they decide which keys are blocked. */
static void record_rows(const RowLock *locks, int n, Now now) {
  RecordedRows sent = recorded_rows(n), kept = recorded_rows(n), dead = recorded_rows(n), retried = recorded_rows(n);

  for (int i = 0; i < n; i++) {
    InFlightEvent *event = event_of(&locks[i]);
    switch (dispatcher().settle(event, found_row(&locks[i]), retention_of(event, now))) {
    case Disposition::DELETE:
      recorded_rows_add(&sent, event, locks[i].ctid);
      break;
    case Disposition::KEEP:
      recorded_rows_add(&kept, event, locks[i].ctid);
      break;
    case Disposition::RETRY:
      recorded_rows_add(&retried, event, locks[i].ctid);
      break;
    case Disposition::DEAD_LETTER:
      recorded_rows_add(&dead, event, locks[i].ctid);
      break;
    case Disposition::FORGET:
    case Disposition::LATER:
      break;
    }
  }
  recorded_rows_delete(&sent);
  recorded_rows_keep(&kept, now);
  recorded_rows_move_to_dead_letters(&dead);
  recorded_rows_reschedule(&retried, now);
}

/* Deletes the rows of delivered events that nobody has modified or locked, and that cannot have overtaken an earlier
 * row: almost all. They come first; returns how many. */
static int record_unmodified(RowLock *locks, int n) {
  int plain = (int)(std::partition(locks, locks + n,
                                   [](const RowLock &lock) {
                                     const InFlightEvent *event = event_of(&lock);
                                     return sink_of(event)->common.retention_ms == 0 &&
                                            !dispatcher().may_be_out_of_order(event);
                                   }) -
                    locks);
  int deleted = heap_delete_unmodified(locks, plain);

  for (int i = 0; i < deleted; i++)
    in_flight().recorded(event_of(&locks[i]));
  return deleted;
}

/* Delivered events. Failed ones before them in their keys were recorded before, so that they are found in the table.
 */
static void record_sent(RowLock *locks, int n, Now now) {
  InFlightEvent **ready = (InFlightEvent **)palloc(sizeof(InFlightEvent *) * n);
  int n_ready = 0;

  row_lock(locks, n, is_for_its_sink);
  OUTBOX_FAULT_POINT("record.sent_locked");
  for (int i = 0; i < n; i++) {
    InFlightEvent *event = event_of(&locks[i]);
    if (dispatcher().recording.is_ready(event, found_row(&locks[i]), retention_of(event, now)))
      ready[n_ready++] = event;
  }
  out_of_order_mark(ready, n_ready, now.moment);
  record_rows(locks, n, now);
}

void record_ended(Now now) {
  Assert(server_is_worker && IsTransactionState());
  const int max = dispatcher().recording.begin(in_flight(), now.moment);
  require_memory(max >= 0);

  sent_day_begin();
  SPI_connect();
  InFlightEvent **events = (InFlightEvent **)palloc(sizeof(InFlightEvent *) * Max(max, 1));
  int failed = 0;
  const int n = dispatcher().recording.choose(in_flight(), events, &failed);
  RowLock *locks = (RowLock *)palloc(sizeof(RowLock) * Max(n, 1));
  for (int i = 0; i < n; i++)
    locks[i] = lock_of(events[i]);
  if (failed > 0) {
    row_lock(locks, failed, is_failing_for_its_sink);
    OUTBOX_FAULT_POINT("record.failed_locked");
    record_rows(locks, failed, now);
  }
  OUTBOX_FAULT_POINT("record.before_delete");
  const int done = failed + record_unmodified(locks + failed, n - failed);
  if (done < n)
    record_sent(locks + done, n - done, now);
  SPI_finish();
}

/* Ended events of each sink that were left unrecorded, and those of them whose recording has failed; `all`: that of
 * all of them has. Returns true when a sink may claim more than before. */
static bool count_unrecorded(bool all) {
  const std::span<WorkerSink *> sinks = worker_sinks_all();
  bool room = false;

  for (WorkerSink *sink : sinks) {
    sink->left_before = sink->left;
    sink->left = sink->left_alone = sink->not_recorded = 0;
  }
  for (const InFlightEvent *event = in_flight().first_ended(); event; event = event->next) {
    WorkerSink *sink = sink_of(event);
    sink->left++;
    sink->left_alone += event->record_failures > 0;
    if (all || event->record_failures > 0 || dispatch::Recording::is_stuck(event->sink))
      sink->not_recorded++;
  }
  for (const WorkerSink *sink : sinks)
    room = room || sink->left < sink->left_before;
  return room;
}

static void tell_error(WorkerSink *sink, const char *error, TimestampTz now) {
  strlcpy(sink->record_error, error, sizeof(sink->record_error));
  if (sink->stats)
    shared_sink_error(sink->stats, error, now);
}

bool record_rolled_back(Now now, const char *error, bool of_rows) {
  Assert(!IsTransactionState());
  dispatch::Recording::Failure failure = {false, NULL};

  if (error && of_rows)
    failure = dispatcher().recording.failed(in_flight());
  if (failure.culprit)
    tell_error(sink_of(failure.culprit), error, now.wall);
  dispatcher().roll_back_recording();
  if (error) {
    const bool all = !failure.try_others;
    (void)count_unrecorded(all);
    for (WorkerSink *sink : worker_sinks_all())
      if (all && sink->left > 0)
        strlcpy(sink->record_error, error, sizeof(sink->record_error));
  }
  return failure.try_others;
}

/* ---- counters ---------------------------------------------------------------------------------------------- */

static void count_event(const InFlightEvent *event) {
  SinkStats *stats = sink_of(event)->stats;

  if (stats == NULL)
    return;
  if (event->outcome == Outcome::SENT) {
    stats->delivered++;
    if (event->late)
      stats->redriven_late++;
    latency_add(&stats->latency, event->ended_at - event->due_since);
    return;
  }
  if (event->outcome == Outcome::RETRY)
    stats->retried++;
  else if (event->outcome == Outcome::REJECTED)
    stats->failed++;
}

/* What the log calls it. */
static Decision decision_of(const InFlightEvent *event) {
  return event->state == EventState::GONE      ? EVENT_GONE
         : event->outcome == Outcome::SENT     ? EVENT_DELIVERED
         : event->outcome == Outcome::REJECTED ? EVENT_DEAD
                                               : EVENT_FAILED;
}

bool record_committed(Now now) {
  Assert(!IsTransactionState());
  std::span<WorkerSink *> sinks = worker_sinks_all();
  uint64 *before = (uint64 *)palloc0(sizeof(uint64) * Max(sinks.size(), 1));

  LWLockAcquire(shared_state()->lock, LW_EXCLUSIVE); /* several workers count for one sink */
  for (size_t i = 0; i < sinks.size(); i++)
    before[i] = sinks[i]->stats ? sinks[i]->stats->delivered : 0;
  for (InFlightEvent *event = in_flight().first_ended(); event; event = event->next)
    if (is_recorded(event)) {
      WorkerSink *given_to = worker_sink_of(event->given_to);
      if (given_to) /* not before: while the event is in flight, claims skip its row */
        sink_cursor_rewind(given_to, event->position);
      count_event(event);
      sink_of(event)->unrecorded--;
    }
  for (size_t i = 0; i < sinks.size(); i++) {
    if (sinks[i]->stats == NULL)
      continue;
    if (sinks[i]->stats->delivered != before[i])
      worker_stops_succeeded(sinks[i]->stats);
    shared_sink_rate(sinks[i]->stats, sinks[i]->stats->delivered - before[i], now.moment);
  }
  LWLockRelease(shared_state()->lock);
  for (InFlightEvent *event = in_flight().first_ended(); event; event = event->next) {
    if (is_recorded(event))
      decision_log(decision_of(event), event->position, sink_of(event)->name,
                   event->outcome == Outcome::DEFERRED ? "no attempt is spent" : NULL, 0);
    if (is_recorded(event) && event->outcome != Outcome::SENT && event->error) {
      if (sink_of(event)->stats)
        shared_sink_error(sink_of(event)->stats, event->error, now.wall);
      if (event->state != EventState::GONE)
        sink_log_count_failed(event);
    }
  }
  in_flight_committed(XactLastCommitEnd);
  return count_unrecorded(false);
}
