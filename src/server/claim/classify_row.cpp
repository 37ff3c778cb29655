/*
 * classify_row.cpp: makes the decisions about a row that need the server: whether it is this worker's, is routed,
 * fits into memory and can be read. dispatch/classify_row.h makes all others. The event is made from the row last,
 * because that costs most.
 */
#include "server/claim/classify_row.h"

#include "server/claim/batches.h"
#include "server/claim/unrouted.h"
#include "server/event/unreadable.h"
#include "server/inflight/blocking.h"
#include "server/inflight/decision_log.h"
#include "server/inflight/in_flight.h"
#include "server/sinks/own_rows.h"
#include "server/sinks/sink_cursor.h"
#include "server/storage/durable.h"

using dispatch::RowDecision;

static dispatch::RowHandle handle_of(const EventRow *row) {
  return {ItemPointerGetBlockNumberNoCheck(&row->ctid), ItemPointerGetOffsetNumberNoCheck(&row->ctid), row->xmin,
          InvalidOid};
}

static InFlightEvent *claim_row(WorkerSink *sink, const EventRow *row, uint32 bytes) {
  const dispatch::InFlight::Claimed claimed = {
      .position = row->position,
      .key_hash = sink->common.ordered ? row->key_hash : 0,
      .sink = &sink->events,
      .row = handle_of(row),
      .attempts = row->attempts,
      .failed = event_row_failed(row),
      .bytes = bytes,
      .shard = (uint8)dispatch::shard_of(row->key_hash, row->position),
      .blocked_by = row->blocked_by,
      .due_since = event_row_failed(row) ? row->created_at : Max(row->created_at, row->available_at),
      .late = sink->common.ordered && row->redrive == REDRIVEN_LATE && row->overtaken_by != 0,
  };
  decision_log_shard(claimed.position, sink->name, claimed.shard); /* first: a line of the log can raise an error */
  InFlightEvent *event = in_flight_claim(&claimed);

  worker_sink_event_claimed(sink, bytes);
  return event;
}

static void add_to_batch(WorkerSink *sink, const EventRow *row) {
  ob_event *event = batch_next(sink);

  unreadable_begin(row->position, row->xmin, PART_EVENT);
  uint32 bytes = event_row_to_event(row, sink->common.ordered, event);
  unreadable_done();
  unreadable_forget(row->position);
  InFlightEvent *claimed = claim_row(sink, row, bytes);
  batch_add(sink, claimed);
  require_memory(dispatcher().event_claimed(claimed));
  durable_note(row->xmin);
}

/* The process has no memory for the event: it blocks its own key, and is read again. */
static void wait_for_memory(WorkerSink *sink, const EventRow *row) {
  char error[128];

  if (sink->common.ordered)
    key_block(sink->oid, row->key_hash, row->position);
  require_memory(dispatcher().locked_rows.add(row->position, InvalidOid, 0));
  snprintf(error, sizeof(error), "out of memory for the event at position " INT64_FORMAT, row->position);
  if (sink->stats && strcmp(sink->stats->last_error, error) != 0) {
    shared_sink_error(sink->stats, error, dispatcher().round.now.wall);
    ereport(WARNING,
            (errmsg("outbox sink \"%s\": %s", sink->name, error), errdetail("The event waits, and others go on.")));
  }
}

/* The failure is recorded like one of a delivery: the row says why it waits, and blocks its key. No attempt is spent,
 * since the row cannot become a dead letter: that would be a copy of it. */
static void fail_unreadable(WorkerSink *sink, const EventRow *row, const UnreadableRow *unreadable) {
  InFlightEvent *event = claim_row(sink, row, 0);

  dispatcher().round.free_events--;
  worker_sink_event_ended(sink, event->bytes);
  require_memory(dispatcher().event_ended(
      event, {Outcome::DEFERRED, unreadable_pause_ms(unreadable), unreadable->error, 0, false, false}, rules_of(sink),
      dispatcher().round.now));
}

static RowDecision skip(const char *reason) {
  return {RowVerdict::SKIP, reason, 0};
}

static RowDecision pass_foreign(const EventRow *row, WorkerSink *sink) {
  if (sink && !row_has_our_origin(row)) {
    sink->cursor->foreign_row_passed(row->position);
    low_watermark_tell(sink);
  }
  return skip(row->sink == NULL          ? "no sink takes it"
              : sink == NULL             ? "its sink is not open here"
              : !row_has_our_origin(row) ? "another cluster or database enqueued it"
                                         : "another worker has its key");
}

static RowDecision ask_dispatch(const EventRow *row, RowScan scan, WorkerSink *sink) {
  const dispatch::Row facts = {
      .position = row->position,
      .key_hash = row->key_hash,
      .available_at = row->available_at,
      .blocked_by = row->blocked_by,
      .failed = event_row_failed(row),
      .redriven = row->redrive != NOT_REDRIVEN,
      .handle = handle_of(row),
  };
  const dispatch::RowSink its_sink = {
      .in_flight = &sink->events,
      .cursor = sink->cursor,
      .ordered = sink->common.ordered,
  };

  return dispatch::classify_row(dispatcher(), facts, its_sink, scan);
}

/* Dispatch would claim the row. */
static RowDecision claim(const EventRow *row, WorkerSink *sink) {
  if (const UnreadableRow *unreadable = unreadable_find(row->position, row->xmin)) {
    fail_unreadable(sink, row, unreadable);
    return skip("it cannot be read");
  }
  if (!event_row_fits(row)) {
    wait_for_memory(sink, row);
    return skip("there is no memory for it");
  }
  add_to_batch(sink, row);
  return {RowVerdict::CLAIM, NULL, 0};
}

static RowDecision decide(const EventRow *row, RowScan scan, WorkerSink **sink_out) {
  bool ours = row_is_ours(row, sink_out);
  WorkerSink *sink = *sink_out;

  /* An unrouted event that a sink takes: it was enqueued before the sink was made and committed after, or it was
   * locked when it was to be routed. The sinks that take it claim no later event until it is routed. */
  if (row->sink == NULL && row_has_our_origin(row) && unreadable_find(row->position, row->xmin) == NULL &&
      unrouted_saw(row) && (scan == RowScan::MAIN || scan == RowScan::LATE))
    return {RowVerdict::STOP, "it is to be routed first", 0};
  if (!ours)
    return pass_foreign(row, sink);
  if (row->position < sink->cursor->low_watermark())
    low_watermark_lower(sink, row->position);
  const RowDecision decision = ask_dispatch(row, scan, sink);
  require_memory(decision.verdict != RowVerdict::OUT_OF_MEMORY);
  return decision.verdict == RowVerdict::CLAIM ? claim(row, sink) : decision;
}

static Decision logged(RowVerdict verdict) {
  return verdict == RowVerdict::CLAIM   ? EVENT_CLAIMED
         : verdict == RowVerdict::BLOCK ? EVENT_BLOCKED
         : verdict == RowVerdict::STOP  ? EVENT_STOPPED
                                        : EVENT_PASSED;
}

RowVerdict classify_row(const EventRow *row, RowScan scan, WorkerSink **sink) {
  const RowDecision decision = decide(row, scan, sink);

  decision_log(logged(decision.verdict), row->position, *sink ? (*sink)->name : NULL, decision.reason,
               decision.blocker);
  return decision.verdict;
}
