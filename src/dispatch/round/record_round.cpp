/* record_round.cpp: the order of the steps of a recording. */
#include "dispatch/round/record_round.h"

#include <algorithm>
#include <climits>

namespace dispatch {

void RecordRound::run(Now now) {
  const int max = d_.recording.begin(d_.in_flight, now.moment);
  int n_failed = 0;

  memory_.events.resize(max);
  const int n = d_.recording.choose(d_.in_flight, memory_.events.data(), &n_failed);
  const std::span<InFlightEvent *> chosen(memory_.events.data(), n), failed = chosen.first(n_failed);
  if (!failed.empty()) {
    lock(failed);
    OUTBOX_ROUND_POINT(port_, "record.failed_locked");
    write(now);
  }
  OUTBOX_ROUND_POINT(port_, "record.before_delete");
  /* Failed events before them in their keys were recorded before, so that they are found in the table. */
  const std::span<InFlightEvent *> sent = chosen.subspan(n_failed);
  const size_t deleted = delete_unmodified(sent);
  if (deleted < sent.size())
    record_sent(sent.subspan(deleted), now);
}

/* Deletes the rows of delivered events that nobody has modified or locked, and that cannot have overtaken an earlier
 * row: almost all. They come first; returns how many. */
size_t RecordRound::delete_unmodified(std::span<InFlightEvent *> events) {
  /* NOLINTNEXTLINE(bugprone-nondeterministic-pointer-iteration-order): no address is compared */
  const auto plain_end = std::partition(events.begin(), events.end(), [this](const InFlightEvent *event) {
    return !round_sink_of(event)->keeps_delivered && !d_.may_be_out_of_order(event);
  });
  const size_t deleted = port_.delete_unmodified({events.begin(), plain_end});

  for (InFlightEvent *event : events.first(deleted))
    d_.in_flight.recorded(event);
  return deleted;
}

void RecordRound::lock(std::span<InFlightEvent *const> events) {
  memory_.ended.clear();
  port_.lock_ended(events, [this](InFlightEvent *event, FoundRow found, const RowHandle &handle) {
    memory_.ended.push_back({event, handle, found, Disposition::LATER});
  });
}

void RecordRound::record_sent(std::span<InFlightEvent *const> events, Now now) {
  lock(events);
  OUTBOX_ROUND_POINT(port_, "record.sent_locked");
  memory_.ready.clear();
  for (const EndedRow &row : memory_.ended)
    if (d_.recording.is_ready(row.event, row.found, port_.retention_of(*row.event)))
      memory_.ready.push_back(row.event);
  mark_overtaken(memory_.ready, now.moment);
  write(now);
}

/* Whether a dead letter blocks its key is asked now: its sink may have been altered since the event ended. */
void RecordRound::prepare(Disposition disposition, RowToWrite *row, Now now) {
  const InFlightEvent *event = row->event;
  const RoundSink *sink = round_sink_of(event);

  if (disposition == Disposition::DEAD_LETTER) {
    d_.dead_letter(sink->id(), event->key_hash, event->position, sink->rules.dead_letters_block);
  }
  if (disposition != Disposition::RETRY)
    return;
  row->next_attempt = next_attempt(event, port_.retry_delay_ms(*event), now.wall);
  sink->cursor->due.expect(row->next_attempt);
  row->group = d_.group_behind_blocker(event);
}

/* Dead letters before retries: they decide which keys are blocked. */
void RecordRound::write(Now now) {
  for (EndedRow &row : memory_.ended) {
    row.disposition = d_.settle(row.event, row.found, port_.retention_of(*row.event));
  }
  for (const Disposition each :
       {Disposition::DELETE, Disposition::KEEP, Disposition::DEAD_LETTER, Disposition::RETRY}) {
    memory_.to_write.clear();
    for (const EndedRow &row : memory_.ended)
      if (row.disposition == each) {
        memory_.to_write.push_back({row.event, row.handle, 0, 0});
        prepare(each, &memory_.to_write.back(), now);
      }
    if (!memory_.to_write.empty())
      port_.write(each, memory_.to_write);
  }
}

/* Finds, locks and marks the earlier rows of keys of which something was delivered: when the delivery is recorded and
 * not when they are redriven, because delivered rows are gone by then. */
void RecordRound::mark_overtaken(std::span<InFlightEvent *const> sent, Moment now) {
  OutOfOrder &out = d_.out_of_order;

  out.begin(now);
  for (InFlightEvent *event : sent)
    if (d_.may_be_out_of_order(event))
      out.add(event);
  out.group(d_.in_flight);
  if (out.keys().empty())
    return;
  OUTBOX_ROUND_POINT(port_, "record.before_overtaken");
  port_.find_earlier(out.keys(), [&](uint32_t key, const EarlierRow &row) { out.found(d_.in_flight, key, row); });
  out.all_found();
  if (out.rows().empty())
    return;
  const std::span<OvertakenRow> dead_letters = out.rows(EarlierRowAction::MARK_DEAD_LETTER);
  port_.lock_earlier(dead_letters, out.rows().subspan(dead_letters.size()));
  out.put_off_after_unlocked();
  for (const EarlierRowAction action :
       {EarlierRowAction::MARK_DEAD_LETTER, EarlierRowAction::MARK_PENDING, EarlierRowAction::DEAD_LETTER_AGAIN}) {
    for (const OvertakenRow &row : out.rows(action)) {
      const InFlightEvent *later = out.keys()[row.key].last;
      if (action == EarlierRowAction::DEAD_LETTER_AGAIN && row.locked) {
        d_.dead_letter(later->sink->id, later->key_hash, row.position,
                       round_sink_of(later)->rules.dead_letters_block);
      }
    }
    if (!out.rows(action).empty())
      port_.write_overtaken(action, out.rows(action));
  }
}

/* ---- afterwards ----------------------------------------------------------------------------------------------- */

/* Ended events of each sink that were left unrecorded, those of them whose recording alone has failed, and those
 * whose recording has failed in any way; `all_failed`: that of all of them has. True when a sink may claim more than
 * before.
 */
bool RecordRound::count_left(bool all_failed) {
  bool room = false;

  for (RoundSink *sink : d_.sinks.all()) {
    sink->left_before = sink->left;
    sink->left = sink->left_alone = sink->not_recorded = sink->sent_not_recorded = 0;
  }
  for (const InFlightEvent *event : d_.in_flight.ended()) {
    RoundSink *sink = round_sink_of(event);
    sink->left++;
    sink->left_alone += event->record_failures > 0;
    const bool fails = all_failed || event->record_failures > 0 || Recording::is_stuck(event->sink);
    sink->not_recorded += fails;
    sink->sent_not_recorded += fails && event->outcome == Outcome::SENT;
  }
  for (const RoundSink *sink : d_.sinks.all())
    room = room || sink->left < sink->left_before;
  return room;
}

bool RecordRound::committed(uint64_t lsn) {
  for (const InFlightEvent *event : d_.in_flight.ended())
    if (is_recorded(event)) {
      if (RoundSink *given_to = d_.sinks.find(event->given_to))
        given_to->cursor->rewind(event->position); /* not before: claims skip the row of an event in flight */
      round_sink_of(event)->unrecorded--;
    }
  if (d_.in_flight.unflushed.flush_wanted(INT_MAX) != 0)
    port_.flush_recordings();
  d_.commit_recording(lsn);
  return count_left(false);
}

Recording::Failure RecordRound::rolled_back(bool failed, bool of_rows) {
  Recording::Failure failure = {false, nullptr};

  if (failed && of_rows)
    failure = d_.recording.failed(d_.in_flight);
  d_.roll_back_recording();
  if (failed)
    (void)count_left(!failure.try_others);
  return failure;
}

}  // namespace dispatch
