/*
 * claim_lock.cpp: the second step of a round. Rows that another session has locked or changed are left out, without
 * waiting. Rows that are to be marked are locked; rows that are to be sent are only checked.
 */
#include "dispatch/round/claim_round.h"

namespace dispatch {

/* Removes a claimed event from its batch. Writing to the log may end the round: then the event is still in the batch,
 * from which give_back() returns it. */
void ClaimRound::drop(InFlightEvent **place, const char *reason) {
  InFlightEvent *event = *place;
  RoundSink *sink = round_sink_of(event);

  port_.event_returned(*event, reason);
  *place = nullptr;
  sink->event_returned(event->bytes);
  sink->cursor->event_dropped();
  d_.in_flight.give_back(event);
}

/* Drops the events whose key an earlier event blocks by now. */
void ClaimRound::prune(RoundSink &sink) {
  for (int i = 0; i < sink.n_batch; i++) {
    InFlightEvent **place = &sink.batch_events[i];
    const InFlightEvent *event = *place;
    if (event == nullptr || !d_.blocked_keys.find_before(sink.id(), event->key_hash, event->position))
      continue;
    /* An earlier row of its key is locked or redriven: the main scan comes to this row again, and marks it. */
    const int64_t position = event->position;
    OUTBOX_ROUND_POINT(port_, "lock.prune");
    drop(place, "an earlier event of its key leads now");
    sink.cursor->rewind(position);
  }
  port_.close_ranks(sink);
}

void ClaimRound::lock_and_mark() {
  const std::span<const Mark> marks = d_.marks.all();
  bool pruned = d_.round.reordered;

  memory_.marks.clear();
  const auto see_event = [&](InFlightEvent **place, RowLocked result) {
    const InFlightEvent *event = *place;
    if (result == RowLocked::LOCKED)
      return;
    pruned = d_.round.dropped = true;
    if (result == RowLocked::BUSY) {
      OUTBOX_ROUND_POINT(port_, "lock.busy_row");
      d_.block_key(event->sink->id, event->key_hash, event->position);
      /* an earlier event of the key may become its blocker */
      d_.locked_rows.add(event->position, event->sink->id, event->key_hash);
    } else {
      d_.blocked_keys.release(event->sink->id, event->key_hash, event->position);
    }
    drop(place, result == RowLocked::BUSY ? "another session has locked it" : "its row has changed");
  };
  const auto see_mark = [&](const Mark &mark, RowLocked result, const RowHandle &handle) {
    if (result == RowLocked::BUSY)
      d_.locked_rows.add(mark.position, mark.sink, mark.key_hash);
    if (result != RowLocked::LOCKED || d_.sinks.find(mark.sink) == nullptr)
      return;
    const int64_t group =
        mark.group == 0 ? 0 : d_.blocked_keys.marked(mark.sink, mark.key_hash, mark.group, mark.position);
    memory_.marks.push_back({handle, group});
  };
  port_.lock(marks, see_event, see_mark);
  if (pruned)
    for (RoundSink *sink : d_.sinks.all())
      prune(*sink);
  if (memory_.marks.empty())
    return;
  OUTBOX_ROUND_POINT(port_, "lock.before_marks");
  port_.write_marks(memory_.marks);
}

}  // namespace dispatch
