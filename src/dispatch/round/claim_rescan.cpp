/*
 * claim_rescan.cpp: reads single rows that no scan finds: rows that users or the router have changed behind the
 * sinks' cursors, rows that were locked, and blockers that may have left the table (rescan_cursor.h, locked_rows.h,
 * blocker_check.h). A full page of the queue is followed by the next page at once: otherwise outbox.adopt() of a
 * million events for a paused sink took one poll per 1,000 events.
 */
#include <algorithm>

#include "dispatch/round/claim_round.h"

namespace dispatch {

static void sort_by_position(RoundMemory &memory) {
  memory.positions.clear();
  memory.by_position.clear();
  for (RereadRow &row : memory.rows) {
    memory.positions.push_back(row.position);
    memory.by_position.push_back(&row);
  }
  std::sort(memory.by_position.begin(), memory.by_position.end(),
            [](const RereadRow *a, const RereadRow *b) { return a->position < b->position; });
}

/* The queue may name a position more than once. */
static std::span<RereadRow *> rows_at(RoundMemory &memory, int64_t position) {
  const auto first = std::lower_bound(memory.by_position.begin(), memory.by_position.end(), position,
                                      [](const RereadRow *row, int64_t at) { return row->position < at; });
  auto end = first;

  while (end != memory.by_position.end() && (*end)->position == position)
    ++end;
  return {first, end};
}

/* Reads the pending rows at the positions of `memory_.rows`, classifies each, releases the keys that a row does not
 * block any more, and sets the fate of each. A position without a pending row: the event is a dead letter, which may
 * block its key, or a user has deleted it, and its key is released. True: there was no room for some. */
bool ClaimRound::read_again() {
  bool wanted_again = false;

  sort_by_position(memory_);
  port_.read({.rows = RowsOf::POSITIONS, .positions = memory_.positions}, [&](const ReadRow &row) {
    const SinkId sink = row.sink ? row.sink->id() : 0;
    d_.blocked_keys.row_seen(sink, row.facts.key_hash, row.facts.position);
    const RowVerdict verdict = classify(row, RowScan::RESCAN);
    if (verdict == RowVerdict::STOP) {
      row.sink->cursor->set_has_backlog(true);
      wanted_again = true;
    }
    const bool mine = is_mine(row.sink, row.facts);
    for (RereadRow *item : rows_at(memory_, row.facts.position)) {
      item->fate = !mine ? RereadRow::OTHERS : verdict == RowVerdict::STOP ? RereadRow::KEPT : RereadRow::DONE;
      item->sink = sink;
      item->key_hash = row.facts.key_hash;
    }
    return true;
  });
  memory_.positions.clear();
  for (const RereadRow &item : memory_.rows)
    if (item.fate == RereadRow::GONE)
      memory_.positions.push_back(item.position);
  find_dead_letters(memory_.positions);
  for (RereadRow &item : memory_.rows) {
    if (item.fate != RereadRow::GONE)
      continue;
    const DeadLetter state = dead_letter_at(item.position);
    if (state == DeadLetter::ELSEWHERE)
      item.fate = RereadRow::OTHERS;
    else if (state != DeadLetter::BLOCKS)
      d_.blocked_keys.release(item.position);
  }
  return wanted_again;
}

void ClaimRound::claim_locked_rows() {
  LockedRows &locked = d_.locked_rows;

  if (locked.next_moment() > d_.round.now.moment)
    return;
  locked.take_due();
  memory_.rows.clear();
  for (int i = 0; i < locked.look_count(); i++)
    memory_.rows.push_back({locked.looked(i).position, RereadRow::GONE, 0, 0});
  (void)read_again();
  for (int i = 0; i < locked.look_count(); i++)
    if (memory_.rows[i].fate == RereadRow::KEPT)
      locked.keep(i, memory_.rows[i].sink, memory_.rows[i].key_hash);
}

bool ClaimRound::rescan(bool *more) {
  RescanCursor &cursor = d_.rescan_cursor;

  OUTBOX_ROUND_POINT(port_, "rescan.begin");
  cursor.begin_page(port_.oldest_running());
  memory_.entries.resize(limits_.queue_entries);
  memory_.entries.resize(port_.read_queue(cursor.after(), memory_.entries));
  const bool full = memory_.entries.size() == limits_.queue_entries;
  memory_.rows.clear();
  for (const QueueEntry &entry : memory_.entries)
    memory_.rows.push_back({entry.place.position, RereadRow::GONE, 0, 0});
  const bool wanted_again = read_again();
  memory_.done.clear();
  for (size_t i = 0; i < memory_.rows.size(); i++) {
    const RereadRow::Fate fate = memory_.rows[i].fate;
    if (fate == RereadRow::KEPT)
      cursor.row_kept(memory_.entries[i].place.xact);
    else if (fate == RereadRow::GONE || fate == RereadRow::DONE)
      memory_.done.push_back(memory_.entries[i].handle);
  }
  if (full)
    cursor.end_page(memory_.entries.back().place);
  else
    cursor.end_pass();
  if (!memory_.entries.empty())
    port_.delete_from_queue(memory_.done);
  *more |= full && !memory_.done.empty();
  return wanted_again || full;
}

/* Releases the keys of blockers that have left the table unnoticed: they are neither in flight nor dead letters that
 * block their keys. True: more of them may have left, so that the next round should follow at once. */
bool ClaimRound::check_blockers() {
  BlockerCheck &check = d_.blocker_check;
  const Moment now = d_.round.now.moment;
  bool released = false;

  if (!check.wanted(d_.blocked_keys, now, limits_.poll_ms))
    return false;
  OUTBOX_ROUND_POINT(port_, "rescan.check_blockers");
  check.begin(now);
  const std::span<const int64_t> blockers = d_.blocked_keys.check_begin();
  if (blockers.empty())
    return check.end(d_.blocked_keys, false);
  port_.read({.rows = RowsOf::POSITIONS, .positions = blockers}, [this](const ReadRow &row) {
    if (row.sink)
      d_.blocked_keys.check_seen(row.sink->id(), row.facts.key_hash, row.facts.position);
    return true;
  });
  const std::span<const int64_t> unseen = d_.blocked_keys.check_unseen();
  find_dead_letters(unseen);
  for (const int64_t position : unseen)
    if (dead_letter_at(position) != DeadLetter::BLOCKS && d_.in_flight.find(position) == nullptr) {
      d_.blocked_keys.release(position);
      released = true;
    }
  return check.end(d_.blocked_keys, released);
}

}  // namespace dispatch
