/* judge.cpp: decides about one row of a round. */
#include "server/claim/judge.h"

#include "server/claim/redriven.h"
#include "server/claim/unrouted.h"
#include "server/event/unreadable.h"
#include "server/inflight/blocking.h"
#include "server/inflight/decision_log.h"
#include "server/inflight/ended.h"
#include "server/inflight/in_flight.h"
#include "server/sinks/dispatcher.h"
#include "server/sinks/shard_handoff.h"
#include "server/sinks/own_rows.h"
#include "server/sinks/sink_place.h"
#include "server/storage/durable.h"

extern "C" {
#include "utils/memutils.h"
}

static void grow_batch(WorkerSink *sink) {
  MemoryContext previous = MemoryContextSwitchTo(claim_round.context);

  sink->max_batch = Max(64, sink->max_batch * 2);
  sink->batch = sink->batch ? (ob_event *)repalloc_huge(sink->batch, sizeof(ob_event) * sink->max_batch)
                            : (ob_event *)palloc(sizeof(ob_event) * sink->max_batch);
  sink->batch_events = sink->batch_events ? (InFlightEvent **)repalloc_huge(sink->batch_events,
                                                                            sizeof(InFlightEvent *) * sink->max_batch)
                                          : (InFlightEvent **)palloc(sizeof(InFlightEvent *) * sink->max_batch);
  MemoryContextSwitchTo(previous);
}

static InFlightEvent *claim_row(WorkerSink *sink, const EventRow *row, uint32 bytes) {
  const dispatch::InFlight::Claimed claimed = {
      .position = row->position,
      .key_hash = sink->common.ordered ? row->key_hash : 0,
      .sink = &sink->events,
      .row = {ItemPointerGetBlockNumberNoCheck(&row->ctid), ItemPointerGetOffsetNumberNoCheck(&row->ctid), row->xmin,
              InvalidOid},
      .attempts = row->attempts,
      .bytes = bytes,
      .shard = (uint8)dispatch::shard_of(row->key_hash, row->position),
      .blocked_by = row->blocked_by,
      .due_since = row->attempts == 0 ? Max(row->created_at, row->available_at) : row->created_at,
      .late = sink->common.ordered && row->redrive == REDRIVEN_LATE && row->overtaken_by != 0,
  };
  InFlightEvent *event = in_flight_claim(&claimed);

  worker_sink_event_claimed(sink, bytes);
  return event;
}

static void add_to_batch(WorkerSink *sink, const EventRow *row) {
  if (sink->n_batch == sink->max_batch)
    grow_batch(sink);
  ob_event *event = &sink->batch[sink->n_batch];

  unreadable_begin(row->position, row->xmin, PART_EVENT);
  uint32 bytes = event_row_to_event(row, sink->common.ordered, event);
  unreadable_done();
  unreadable_forget(row->position);
  InFlightEvent *claimed = claim_row(sink, row, bytes);
  event->ticket = in_flight().ticket(claimed);
  sink->batch_events[sink->n_batch++] = claimed;
  redriven_saw(claimed);
  claim_round.free_events--;
  claim_round.free_bytes -= bytes;
  claim_round.n_taken++;
  durable_note(row->xmin);
}

/* Not due yet. A failing event leads its key; a merely scheduled one neither leads nor waits. Only rows that are not
 * held are found when they are due. */
static void put_off(WorkerSink *sink, const EventRow *row) {
  sink->next_due = Min(sink->next_due, row->available_at);
  if (row->available_at <= sink->due_after) /* the clock went back */
    sink->due_after = row->available_at - 1;
  if (sink->common.ordered && row->attempts > 0) {
    key_block(sink->oid, row->key_hash, row->position);
    const BlockedKey *key = blocked_keys().find_before(sink->oid, row->key_hash, row->position);
    if (key) { /* it failed, and then an earlier one did */
      if (row->blocked_by != key->group)
        round_mark({row->position, row->ctid, key->group, sink->oid, row->key_hash});
      return;
    }
  } else {
    blocked_keys().release(sink->oid, row->key_hash, row->position);
  }
  /* Due rows are found by their sink's name as it is now. */
  bool former_name =
      strlen(sink->name) != (size_t)row->sink_length || memcmp(sink->name, row->sink, row->sink_length) != 0;
  if (row->blocked_by != 0 || former_name)
    round_mark({row->position, row->ctid, 0, sink->oid, row->key_hash});
}

/* An event that the process has no memory for holds up its key alone, and is looked at again. */
static void wait_for_memory(WorkerSink *sink, const EventRow *row) {
  char error[128];

  if (sink->common.ordered)
    key_block(sink->oid, row->key_hash, row->position);
  require_memory(dispatcher().locked_rows.add(row->position, InvalidOid, 0));
  snprintf(error, sizeof(error), "out of memory for the event at position " INT64_FORMAT, row->position);
  if (sink->stats && strcmp(sink->stats->last_error, error) != 0) {
    shared_sink_error(sink->stats, error, claim_round.now.wall);
    ereport(WARNING,
            (errmsg("outbox sink \"%s\": %s", sink->name, error), errdetail("The event waits, and others go on.")));
  }
}

/* Its failure is recorded like a delivery's: the row says why it waits, and leads its key. No attempt is spent, since
 * it cannot become a dead letter either: that would be a copy of it. */
static void fail_unreadable(WorkerSink *sink, const EventRow *row, const UnreadableRow *unreadable) {
  InFlightEvent *event = claim_row(sink, row, 0);

  claim_round.free_events--;
  ended_fail(event, unreadable_pause_ms(unreadable), unreadable->error, claim_round.now);
}

static Verdict because(Verdict verdict, const char *reason, int64 blocker = 0) {
  claim_round.reason = reason;
  claim_round.blocker = blocker;
  return verdict;
}

static Verdict decide(const EventRow *row, Stream stream, WorkerSink **sink_out) {
  bool ours = row_is_ours(row, sink_out);
  WorkerSink *sink = *sink_out;

  /* Enqueued before, committed after a sink appeared, or locked when it was to be routed. Those that take it claim
   * nothing that comes after it before it is routed. */
  if (row->sink == NULL && row_has_our_origin(row) && unreadable_find(row->position, row->xmin) == NULL &&
      unrouted_saw(row) && (stream == MAIN || stream == LATE))
    return because(STOP, "it is to be routed first");
  if (!ours) {
    if (sink && !row_has_our_origin(row) && (sink->first_foreign == 0 || row->position < sink->first_foreign))
      known_below_lower(sink, sink->first_foreign = row->position);
    return because(PASS, row->sink == NULL          ? "no sink takes it"
                         : sink == NULL             ? "its sink is not open here"
                         : !row_has_our_origin(row) ? "another cluster or database enqueued it"
                                                    : "another worker has its key");
  }
  if (row->position < sink->known_below)
    known_below_lower(sink, row->position);
  if (stream == MAIN && (!sink->reading || row->position <= sink->cursor))
    return because(PASS, sink->reading ? "it was looked at before" : "its sink reads no farther");
  if (stream != MAIN && row->position > sink->cursor)
    return because(PASS, "its position comes later");
  InFlightEvent *event = in_flight().find(row->position);
  if (event) {
    if (event->sink != &sink->events || event->state == EventState::GONE)
      event->given_to = sink->oid;
    return because(PASS, "it is in flight");
  }
  if (row->available_at > claim_round.now.wall) {
    put_off(sink, row);
    return because(PASS, "it is not due");
  }
  if (sink->room <= 0 || claim_round.free_events <= 0 || claim_round.free_bytes <= 0 ||
      (stream == MAIN && dispatcher().locked_rows.full()))
    return because(STOP, sink->room <= 0 ? "its sink takes no more" : "the worker takes no more");
  const BlockedKey *key = sink->common.ordered ? blocked_keys().find(sink->oid, row->key_hash) : NULL;
  if (key && (key->state == KeyState::BLOCKED ? row->position > key->blocker : stream != HELD)) {
    if (row->blocked_by == key->group) {
      /* It may have come from another sink after the key had drained past its place. */
      blocked_keys().drain_again_from(sink->oid, row->key_hash, row->position);
      return because(PASS, "its key is blocked", key->blocker);
    }
    round_mark({row->position, row->ctid, key->group, sink->oid, row->key_hash});
    return because(HOLD, "its key is blocked", key->blocker);
  }
  if (sink->common.ordered && row->redrive != NOT_REDRIVEN && redriven_must_wait(sink, row))
    return because(PASS, "it was redriven, and later events of its key are in flight");
  if (const UnreadableRow *unreadable = unreadable_find(row->position, row->xmin)) {
    fail_unreadable(sink, row, unreadable);
    return because(PASS, "it cannot be read");
  }
  if (!event_row_fits(row)) {
    wait_for_memory(sink, row);
    return because(PASS, "there is no memory for it");
  }
  add_to_batch(sink, row);
  return because(TAKE, NULL);
}

Verdict judge(const EventRow *row, Stream stream, WorkerSink **sink) {
  static const Decision decision_of[] = {EVENT_CLAIMED, EVENT_PASSED, EVENT_BLOCKED, EVENT_STOPPED}; /* by Verdict */
  const Verdict verdict = decide(row, stream, sink);

  decision_log(decision_of[verdict], row->position, *sink ? (*sink)->name : NULL, claim_round.reason,
               claim_round.blocker);
  return verdict;
}
