/* claim_round.cpp: the order of the steps of a round. */
#include "dispatch/round/claim_round.h"

#include <algorithm>
#include <utility>

namespace dispatch {

bool ClaimRound::is_mine(const RoundSink *sink, const Row &row) const {
  const int shard = shard_of(row.key_hash, row.position);

  return sink ? sink->shards.may_claim(shard) : d_.shards.mine().has(shard);
}

/* Before rows are read: a key that has become free meanwhile must not drain past the returned events. */
void ClaimRound::mark_returned() {
  d_.mark_returned();
  for (const Mark &mark : d_.marks.returned()) {
    RoundSink *sink = d_.sinks.find(mark.sink);
    if (mark.group != 0)
      port_.returned_event_blocked(mark, d_.blocked_keys.find(mark.sink, mark.key_hash)->blocker);
    else if (sink)
      sink->cursor->rewind(mark.position);
  }
}

bool ClaimRound::late_can_go_on(const RoundSink &sink) {
  return !sink.cursor->late.empty() && !port_.routing_is_stuck(sink.cursor->unrouted_at());
}

bool ClaimRound::can_go_on(WallTime now) {
  for (const RoundSink *sink : d_.sinks.all())
    if (sink->cursor->free_places() > 0 &&
        (sink->cursor->has_backlog() || d_.blocked_keys.any_draining(sink->id()) || late_can_go_on(*sink) ||
         sink->cursor->early_retry.going() || sink->cursor->due.next() <= now))
      return true;
  return false;
}

bool ClaimRound::has_news() {
  int64_t cursor = INT64_MAX;

  port_.take_snapshot();
  for (const RoundSink *sink : d_.sinks.all()) {
    if (sink->stopped)
      continue;
    cursor = std::min(cursor, sink->cursor->position());
    if (late_can_go_on(*sink) || sink->cursor->has_backlog() || sink->cursor->early_retry.going())
      return true;
  }
  if (d_.sinks.all().empty() || !d_.marks.returned().empty() || d_.sinks.any_fresh_shard() || d_.blocked_keys.any() ||
      !d_.dead_letter_read.all_known() || !d_.sinks.troubled_known())
    return true;
  const TransactionSnapshot transactions = port_.transactions();
  d_.late_commits.find_ended(transactions);
  if (port_.any_news(d_.rescan_cursor.after(), cursor, d_.late_commits.ended()))
    return true;
  d_.late_commits.note_running(transactions);
  return false;
}

bool ClaimRound::run(Now now, bool *rescan_wanted) {
  bool more = false;

  d_.begin_round(now, port_.free_events(), std::min(port_.free_bytes(), limits_.bytes));
  mark_returned();
  OUTBOX_ROUND_POINT(port_, "claim.begin");
  if (d_.sinks.any_fresh_shard())
    d_.dead_letter_read.restart();
  /* One snapshot for all reads of the round: the late scan and the main scan must meet without a gap. */
  port_.take_snapshot();
  port_.check_sinks();
  if (d_.sinks.any_fresh_shard())
    read_fresh_shards();
  more |= read_dead_letters();
  more |= read_troubled();
  find_late_commits();
  skip_to_first_rows();
  for (RoundSink *sink : d_.sinks.all())
    if (looks_up(*sink))
      sink->cursor->claim_at_most(limits_.looked_up);
  OUTBOX_ROUND_POINT(port_, "claim.skipped");
  for (RoundSink *sink : d_.sinks.all()) {
    if (sink->cursor->free_places() <= 0)
      continue;
    /* Before the late scan: this snapshot does not see the rows that the late scan marks, and a key that drains after
     * it would be free although they wait. */
    more |= scan_draining(*sink);
    scan_late(*sink);
    more |= late_can_go_on(*sink) && sink->cursor->free_places() > 0; /* the main scan waits for a long late scan */
    more |= scan_due(*sink);
    more |= scan_early_retry(*sink);
  }
  claim_locked_rows();
  if (*rescan_wanted) {
    const bool check_again = check_blockers();
    *rescan_wanted = rescan(&more) || check_again;
    more |= check_again;
  }
  more |= scan_main();
  for (const RoundSink *sink : d_.sinks.all()) /* keys drain up to the cursor */
    more |= sink->cursor->free_places() > 0 && sink->cursor->advanced() && d_.blocked_keys.any_draining(sink->id());
  more |= d_.round.free_bytes <= 0 && port_.free_events() > 0; /* the round is full, and the sinks are not */
  OUTBOX_ROUND_POINT(port_, "claim.before_lock");
  if (!d_.sinks.troubled_known()) {
    hold_behind_troubled();
    more = true;
  }
  if (!d_.dead_letter_read.dead_known())
    hold_behind_dead_letters();
  if (d_.round.n_claimed > 0 || !d_.marks.all().empty())
    lock_and_mark();
  OUTBOX_ROUND_POINT(port_, "claim.locked");
  return more || d_.round.dropped;
}

void ClaimRound::return_event(InFlightEvent *event) {
  RoundSink *sink = round_sink_of(event), *given_to = d_.sinks.find(event->given_to);
  const int64_t position = event->position;
  const BlockedKey *key = d_.blocked_keys.find_before(sink->id(), event->key_hash, position);

  port_.event_returned(*event, nullptr);
  sink->cursor->event_came_back(position);
  d_.blocked_keys.drain_again_from(sink->id(), event->key_hash, position);
  if (given_to)
    given_to->cursor->rewind(position); /* it passed the row while the event was in flight */
  if (event->early)
    sink->cursor->early_retry.returned();
  if (key == nullptr)
    sink->cursor->rewind(position);
  else if (event->blocked_by != key->group)
    d_.marks.add_returned({position, event->row, 0, sink->id(), event->key_hash});
  sink->event_returned(event->bytes);
  d_.in_flight.give_back(event);
}

void ClaimRound::give_back() {
  if (!d_.round.open)
    return;
  for (RoundSink *sink : d_.sinks.all()) {
    for (int i = 0; i < sink->n_batch; i++)
      if (InFlightEvent *event = std::exchange(sink->batch_events[i], nullptr))
        return_event(event);
    sink->n_batch = 0;
  }
  for (const Mark &mark : d_.marks.returned())
    if (RoundSink *sink = d_.sinks.find(mark.sink))
      sink->cursor->rewind(mark.position);
  d_.roll_back_round();
}

}  // namespace dispatch
