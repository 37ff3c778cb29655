/* claim_event.cpp: makes the event of a row that a round has chosen. A row that cannot be read waits. An event that
 * is too large for its sink goes to the delivery library without its content, and comes back as a dead letter in the
 * order of its key. */
#include "server/claim/claim_table.h"

#include "server/claim/batches.h"
#include "server/event/event_row.h"
#include "server/event/unreadable.h"
#include "server/inflight/decision_log.h"
#include "server/inflight/events_in_flight.h"
#include "server/sinks/careful.h"
#include "server/storage/durable.h"

static InFlightEvent *claim_row(WorkerSink *sink, const dispatch::ReadRow *read, uint32 bytes) {
  const EventRow *row = (const EventRow *)read->of_port;
  const dispatch::InFlight::Claimed claimed = {
      .position = row->position,
      .key_hash = sink->rules.ordered ? row->key_hash : 0,
      .sink = &sink->events,
      .row = read->facts.handle,
      .attempts = row->attempts,
      .failed = read->facts.failed,
      .bytes = bytes,
      .shard = (uint8)dispatch::shard_of(row->key_hash, row->position),
      .blocked_by = row->blocked_by,
      /* the time of `facts`, since an early retry is due at once */
      .due_since = read->facts.failed ? row->created_at : Max(row->created_at, read->facts.available_at),
      .late = sink->rules.ordered && row->redrive == REDRIVEN_LATE && row->overtaken_by != 0,
  };
  decision_log_shard(claimed.position, sink->name, claimed.shard); /* first: a line of the log can raise an error */
  InFlightEvent *event = in_flight().claim(claimed);

  sink->event_claimed(bytes);
  return event;
}

static InFlightEvent *add_to_batch(WorkerSink *sink, const dispatch::ReadRow *read) {
  const EventRow *row = (const EventRow *)read->of_port;
  ob_event *event = batch_next(sink);
  uint32 bytes;

  unreadable_begin(row->position, row->xmin, PART_EVENT);
  careful().reads(sink, row->position, read->facts.handle);
  event_row_to_event(row, sink->rules.ordered, sink->common.max_payload, event, &bytes);
  careful().read();
  unreadable_done();
  unreadable_forget(row->position);
  InFlightEvent *claimed = claim_row(sink, read, bytes);
  batch_add(sink, claimed);
  durable_note(row->xmin);
  return claimed;
}

/* The failure is recorded like one of a delivery: the row says why it waits, and blocks its key. No attempt is spent,
 * since the row cannot become a dead letter: that would be a copy of it. */
static void fail_unreadable(WorkerSink *sink, const dispatch::ReadRow *read, const UnreadableRow *unreadable) {
  InFlightEvent *event = claim_row(sink, read, 0);

  dispatcher().round.free_events--;
  sink->event_ended(event->bytes);
  dispatcher().event_ended(event,
                           {Outcome::DEFERRED, unreadable_pause_ms(unreadable), unreadable->error, 0, false, false},
                           sink->rules, dispatcher().round.now);
}

/* The event crashes the worker when it is read or sent. It becomes a dead letter without being read again. */
static void fail_crashed(WorkerSink *sink, const dispatch::ReadRow *read) {
  static const char error[] = "crashed the worker twice or more, the last time while it alone was read or sent";
  InFlightEvent *event = claim_row(sink, read, 0);

  ereport(WARNING, (errmsg("outbox sink \"%s\": the event at position " INT64_FORMAT " becomes a dead letter",
                           sink->name, read->facts.position),
                    errdetail("The event %s.", error),
                    errhint("Read the server's log at the time of the crashes. To send the event again: SELECT "
                            "outbox.redrive('id of the event', force => true);")));
  dispatcher().round.free_events--;
  sink->event_ended(event->bytes);
  dispatcher().event_ended(event, {Outcome::REJECTED, -1, error, 0, false, false}, sink->rules,
                           dispatcher().round.now);
}

InFlightEvent *ClaimTable::claim(const dispatch::ReadRow &row, const char **reason) {
  const EventRow *event_row = (const EventRow *)row.of_port;
  WorkerSink *sink = static_cast<WorkerSink *>(row.sink);

  if (const UnreadableRow *unreadable = unreadable_find(event_row->position, event_row->xmin)) {
    fail_unreadable(sink, &row, unreadable);
    *reason = "it cannot be read";
    return NULL;
  }
  if (unlikely(careful().guilt(sink, event_row->position, row.facts.handle) == Guilt::GUILTY)) {
    fail_crashed(sink, &row);
    *reason = "it crashed the worker";
    return NULL;
  }
  return add_to_batch(sink, &row);
}
