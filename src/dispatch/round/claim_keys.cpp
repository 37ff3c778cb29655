/*
 * claim_keys.cpp: the worker learns from the table which keys are blocked: in shards that it has taken over, and by
 * dead letters. In a sink with on_dead_letter 'block' each dead letter blocks its key until a user redrives, moves or
 * deletes it. In every ordered sink the delivery of a later event of such a key is recorded (out_of_order.h), so that
 * a redrive knows whether it comes too late. Nothing is delivered before the marks of blocked keys are read; dead
 * letters, failing and redriven rows are read beside deliveries (dead_letter_read.h, troubled_read.h).
 */
#include "dispatch/round/claim_round.h"

#include <algorithm>
#include <cassert>

namespace dispatch {

bool ClaimRound::is_fresh(const ReadRow &row) const {
  return is_ours(row) && row.sink->rules.ordered &&
         row.sink->shards.is_fresh(shard_of(row.facts.key_hash, row.facts.position));
}

void ClaimRound::read_fresh_shards() {
  port_.read({.rows = RowsOf::GROUPS}, [&](const ReadRow &row) {
    if (is_fresh(row))
      d_.blocked_keys.drain(row.sink->id(), row.facts.key_hash, row.facts.blocked_by, row.facts.position);
    return true;
  });
  d_.rescan_cursor.restart();
  OUTBOX_ROUND_POINT(port_, "shard.before_read");
  for (RoundSink *sink : d_.sinks.all()) {
    if (sink->shards.any_fresh())
      sink->cursor->troubled.restart();
    sink->shards.fresh_read();
  }
}

/* ---- failing and redriven rows -------------------------------------------------------------------------------- */

/* A second one of its key is read again by itself, and marked: it would not block the key when the first one is sent.
 * One that has ended has already blocked its key, or let it go on; so has one whose key or sink a user has changed in
 * flight. */
void ClaimRound::block_by_failing(const ReadRow &row) {
  const SinkId sink = row.sink->id();
  const InFlightEvent *event = d_.in_flight.find(row.facts.position);
  if (event && (has_ended(event) || event->key_hash != row.facts.key_hash || event->sink != &row.sink->events))
    return;
  d_.block_key(sink, row.facts.key_hash, row.facts.position);
  if (event == nullptr && d_.blocked_keys.find_before(sink, row.facts.key_hash, row.facts.position) &&
      !d_.locked_rows.has(row.facts.position))
    d_.locked_rows.add(row.facts.position, sink, row.facts.key_hash);
}

/* A redriven row that waits for its time blocks nothing: the due scan finds it. */
void ClaimRound::learn_troubled(const ReadRow &row) {
  const bool waits = row.facts.available_at > d_.round.now.wall;

  if (row.facts.redriven)
    d_.dead_letter_keys.note(row.facts.key_hash);
  if (!is_ours(row) || !row.sink->rules.ordered || row.facts.blocked_by != 0)
    return;
  if (row.facts.redriven && !waits)
    d_.redriven_row(row.sink->id(), row.facts.key_hash, row.facts.position);
  if (row.facts.failed && row.facts.available_at != WALL_TIME_BEGIN)
    block_by_failing(row);
}

/* Of all failing and redriven rows that are not yet known the next slice. True: there are more. */
bool ClaimRound::read_troubled() {
  int left = limits_.troubled;

  for (RoundSink *sink : d_.sinks.all()) {
    TroubledRead &read = sink->cursor->troubled;
    if (!read.all_known() && !sink->rules.ordered)
      read.end();
    if (read.all_known() || left <= 0)
      continue;
    int n = 0;
    port_.read({.rows = RowsOf::TROUBLED,
                .sink = sink,
                .after = read.after_position(),
                .after_hash = read.after_hash(),
                .limit = left},
               [&](const ReadRow &row) {
                 n++;
                 read.read_to(row.facts.key_hash, row.facts.position);
                 learn_troubled(row);
                 return true;
               });
    if (n < left)
      read.end();
    left -= n;
  }
  if (d_.sinks.troubled_known())
    d_.dead_letter_read.redriven_known();
  return left <= 0;
}

void ClaimRound::learn_key(RoundSink &sink, uint64_t key_hash) {
  if (sink.rules.ordered && key_hash != 0 && !sink.cursor->troubled.knows(key_hash))
    port_.read({.rows = RowsOf::TROUBLED_OF_KEY, .sink = &sink, .key_hash = key_hash}, [this](const ReadRow &row) {
      learn_troubled(row);
      return true;
    });
}

/* While failing and redriven rows are unknown: blocks the keys of claimed events that have an earlier one. Their
 * events are then dropped (prune()). */
void ClaimRound::hold_behind_troubled() {
  for (RoundSink *sink : d_.sinks.all())
    for (int i = 0; !sink->cursor->troubled.all_known() && i < sink->n_batch; i++) {
      const InFlightEvent *event = sink->batch_events[i];
      const auto is_behind = [&] {
        return d_.blocked_keys.find_before(sink->id(), event->key_hash, event->position) != nullptr;
      };
      if (!is_behind())
        learn_key(*sink, event->key_hash);
      d_.round.reordered |= is_behind();
    }
}

/* The key of each event that the sink claims is looked up. */
bool ClaimRound::looks_up(const RoundSink &sink) const {
  return (sink.rules.ordered && !sink.cursor->troubled.all_known()) ||
         (sink.rules.dead_letters_block && !d_.dead_letter_read.dead_known());
}

/* ---- dead letters --------------------------------------------------------------------------------------------- */

/* A key that drains comes to its dead letter by itself (dead_letter_stops()), after the rows before it. One that its
 * dead letter has blocked before all of these had drained drains again: an event that is rejected blocks its key at
 * once, because later ones may be held or in flight. */
DeadLetter ClaimRound::note_dead_letter(const ReadRow &row) {
  d_.dead_letter_keys.note(row.facts.key_hash);
  if (!is_ours(row))
    return is_mine(row.sink, row.facts) ? DeadLetter::DEAD : DeadLetter::ELSEWHERE;
  if (!row.sink->rules.dead_letters_block || row.facts.key_hash == 0)
    return DeadLetter::DEAD;
  const BlockedKey *key = d_.blocked_keys.find(row.sink->id(), row.facts.key_hash);
  if (key && key->may_have_undrained_before(row.facts.position) &&
      (key->state == KeyState::DRAINING || key->blocker == row.facts.position))
    return DeadLetter::DEAD;
  d_.block_key(row.sink->id(), row.facts.key_hash, row.facts.position);
  return DeadLetter::BLOCKS;
}

/* Of all dead letters (dead_letter_read.h) the next slice. True: there are more. */
bool ClaimRound::read_dead_letters() {
  int n = 0;
  int64_t last = d_.dead_letter_read.after();

  if (d_.dead_letter_read.dead_known())
    return false;
  port_.read({.rows = RowsOf::DEAD, .after = last, .limit = limits_.dead_letters}, [&](const ReadRow &row) {
    n++;
    last = row.facts.position;
    note_dead_letter(row);
    return true;
  });
  OUTBOX_ROUND_POINT(port_, "claim.dead_letters_read");
  if (n == limits_.dead_letters) {
    d_.dead_letter_read.read_to(last);
    return true;
  }
  d_.dead_letter_read.end();
  for (RoundSink *sink : d_.sinks.all())
    sink->cursor->troubled.restart();
  return false;
}

/* While dead letters are unknown: blocks the keys of claimed events that have an earlier one. Their events are then
 * dropped (prune()). */
void ClaimRound::hold_behind_dead_letters() {
  for (RoundSink *sink : d_.sinks.all()) {
    for (int i = 0; sink->rules.dead_letters_block && i < sink->n_batch; i++) {
      const InFlightEvent *event = sink->batch_events[i];
      const BlockedKey *key = d_.blocked_keys.find(sink->id(), event->key_hash);
      if (event->key_hash == 0 || (key && (key->state == KeyState::DRAINING || key->blocker < event->position)))
        continue;
      const DrainStops stops = dead_letter_stops(*sink, event->key_hash);
      const int64_t first = std::min(stops.dead, stops.redriven);
      if (first > event->position)
        continue;
      d_.block_key(sink->id(), event->key_hash, first);
      d_.round.reordered = true;
    }
  }
}

/* Finds the dead letters at these positions for dead_letter_at(), and blocks the keys of those that block their keys.
 * With the snapshot that did not show the positions as pending. There is room for them. */
void ClaimRound::find_dead_letters(std::span<const int64_t> positions) {
  Vector<FoundDeadLetter> &found = memory_.dead_letters;

  found.clear();
  if (positions.empty())
    return;
  port_.read({.rows = RowsOf::DEAD_POSITIONS, .positions = positions}, [&](const ReadRow &row) {
    const int64_t position = row.facts.position;
    d_.blocked_keys.row_seen(row.sink ? row.sink->id() : 0, row.facts.key_hash, position);
    found.push_back({position, note_dead_letter(row)});
    return true;
  });
  std::ranges::sort(found, {}, &FoundDeadLetter::position);
}

DeadLetter ClaimRound::dead_letter_at(int64_t position) const {
  const auto found = std::ranges::lower_bound(memory_.dead_letters, position, {}, &FoundDeadLetter::position);
  return found != memory_.dead_letters.end() && found->position == position ? found->state : DeadLetter::NOT_DEAD;
}

/* Finds the rows of this key that its later events must not pass while it drains: its first dead letter and its first
 * redriven row. Both reads use the snapshot of the round, so a dead letter that is redriven meanwhile is found in one
 * of the two tables, and later events of its key are not sent before it. A redriven event in flight is no such row:
 * if it fails, the later events that were sent behind it are returned. */
DrainStops ClaimRound::dead_letter_stops(RoundSink &sink, uint64_t key_hash) {
  DrainStops stops;

  port_.read({.rows = RowsOf::DEAD_OF_KEY, .sink = &sink, .key_hash = key_hash}, [&](const ReadRow &row) {
    if (is_ours(row))
      stops.dead = row.facts.position;
    return !is_ours(row);
  });
  port_.read({.rows = RowsOf::REDRIVEN_OF_KEY, .sink = &sink, .key_hash = key_hash}, [&](const ReadRow &row) {
    if (d_.in_flight.find(row.facts.position) || !is_ours(row))
      return true;
    stops.redriven = row.facts.position;
    return false;
  });
  /* Rejected events that are not recorded as dead letters yet, because their rows are locked. */
  for (const InFlightEvent *event : d_.in_flight.ended())
    if (event->outcome == Outcome::REJECTED && event->sink == &sink.events && event->key_hash == key_hash)
      stops.dead = std::min(stops.dead, event->position);
  return stops;
}

}  // namespace dispatch
