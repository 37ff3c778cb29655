/*
 * truth.cpp: order is promised between two events of a key when the later one took its position after the earlier
 * one's transaction had committed, or when one transaction wrote both. An event that was scheduled, or that a user
 * has changed, has no order with later ones. A dead letter may be passed (unless it blocks its key), and goes after
 * later ones only if that was forced.
 */
#include "test/simulate/truth.h"

#include <algorithm>

namespace simulate {

void Truth::enqueued(int64_t position, Xid xid, SinkId sink, uint64_t key_hash, bool scheduled) {
  events_.resize(position + 1);
  Event &event = events_[position];
  event.xid = xid;
  event.drawn_at = table_.steps();
  event.sink = sink;
  event.key_hash = key_hash;
  event.any_order = scheduled;
}

void Truth::committed(int64_t position, bool sent) {
  Event &event = at(position);
  if (!table_.is_committed(event.xid) || event.outstanding || event.deleted || sent)
    return;
  event.outstanding = true;
  std::vector<int64_t> &list = key_of(event).outstanding;
  list.insert(std::upper_bound(list.begin(), list.end(), position), position);
}

void Truth::leave(int64_t position) {
  Event &event = at(position);
  if (!event.outstanding)
    return;
  event.outstanding = false;
  std::vector<int64_t> &list = key_of(event).outstanding;
  list.erase(std::lower_bound(list.begin(), list.end(), position));
}

void Truth::changed(int64_t position) {
  at(position).any_order = true;
}

void Truth::moved(int64_t position, SinkId sink, uint64_t key_hash) {
  leave(position);
  Event &event = at(position);
  event.any_order = event.moved = true;
  event.sink = sink;
  event.key_hash = key_hash;
  event.deliveries = event.sinks >> sink & 1;
  event.rejected = event.redriven = event.forced = false;
}

void Truth::deleted(int64_t position) {
  at(position).deleted = true;
  leave(position);
}

void Truth::redriven(int64_t position, bool force) {
  at(position).redriven = true;
  at(position).forced |= force;
}

bool Truth::must_precede(int64_t earlier, int64_t later) const {
  const Event &a = at(earlier), &b = at(later);
  if (a.any_order || a.deleted || b.moved)
    return false;
  return table_.top(a.xid) == table_.top(b.xid) || table_.xact(table_.top(a.xid)).committed_at < b.drawn_at;
}

void Truth::check_phantom(int64_t position, const Event &event) const {
  if (!table_.is_committed(event.xid))
    throw Broken("phantom: the event is sent, and its transaction has not committed", {position});
  if (table_.lsn_of(event.xid) > table_.flushed())
    throw Broken("phantom: the event is sent before its transaction is durable", {position});
}

void Truth::check_duplicate(int64_t position, Event &event) {
  if (event.deliveries == 0)
    return;
  n_duplicates_++;
  if (event.known_to == 0 || event.moved)
    return; /* the answer was lost; or it was moved in flight, maybe to another worker's shard */
  if (dead_.find(event.known_to) == dead_.end())
    throw Broken("duplicate: the event is sent again, although its delivery was acknowledged", {position});
  if (--allowed_ < 0)
    throw Broken("duplicates: more than outbox.max_in_flight after the crashes so far", {position});
  event.known_to = 0;
}

void Truth::check_order(int64_t position, const Event &event) {
  const SinkRule &rule = sinks_[event.sink - 1];
  if (!rule.ordered || event.key_hash == 0)
    return;
  Key &key = key_of(event);
  for (int64_t other : key.outstanding) {
    if (other >= position)
      break;
    const Event &earlier = at(other);
    const bool may_be_passed = earlier.forced || ((earlier.rejected || earlier.redriven) && !rule.hold);
    if (!may_be_passed && must_precede(other, position))
      throw Broken("order: the event is sent before an earlier one of its key", {other, position});
  }
  const bool refusal_forgotten =
      event.rejected && !event.redriven && !dead_.empty(); /* a crash came before it was recorded */
  if (event.forced || refusal_forgotten || key.last_sent < position)
    return;
  for (int64_t other : key.sent) {
    const Event &later = at(other);
    const bool known = later.recorded || (later.known_to != 0 && dead_.find(later.known_to) == dead_.end());
    if (other > position && must_precede(position, other) && later.sink == event.sink && (known || !event.redriven))
      throw Broken("order: the event is sent after a later one of its key, which nobody has forced",
                   {position, other});
  }
}

/* Not what a user has sent again or changed. */
bool Truth::is_of_a_run(int64_t position) const {
  const Event &event = at(position);
  return !event.any_order && !event.deleted && !event.redriven && !event.forced && !event.rejected;
}

/* After an event that came again, the later ones of its key that had arrived before come again too. */
void Truth::check_run(const Key &key, int64_t upto) const {
  const int64_t again = key.arrived;
  if (again == 0 || again >= upto || at(again).deliveries < 2 || at(again).held || !is_of_a_run(again))
    return;
  for (int64_t other : key.sent)
    if (other > again && other < upto && at(other).last_at < at(again).last_at && is_of_a_run(other) &&
        must_precede(again, other) && (upto == INT64_MAX || must_precede(other, upto)))
      throw Broken(
          "hole: later ones of its key had arrived before the event came again, and one of them did not follow",
          {again, other});
}

void Truth::ended() const {
  for (const auto &[id, key] : keys_)
    check_run(key, INT64_MAX);
}

void Truth::delivered(int64_t position, SinkId sink, uint64_t key_hash, Incarnation) {
  Event &event = at(position);
  n_deliveries_++;
  check_phantom(position, event);
  event.sinks |= 1U << sink;
  if (event.sink != sink)
    return; /* it was moved while it was in flight */
  check_duplicate(position, event);
  if (sinks_[sink - 1].ordered && event.key_hash != key_hash) { /* likewise, to another key */
    event.deliveries++;
    leave(position);
    return;
  }
  event.last_at = n_deliveries_;
  if (Key &key = key_of(event); sinks_[sink - 1].ordered && event.key_hash != 0) {
    check_run(key, position);
    key.arrived = position;
  }
  if (event.deliveries++ > 0)
    return;
  leave(position);
  check_order(position, event);
  event.first_at = table_.steps();
  Key &key = key_of(event);
  key.sent.push_back(position);
  key.last_sent = std::max(key.last_sent, position);
}

void Truth::recorded(int64_t position) {
  Event &event = at(position);
  if (event.deliveries == 0 && !event.any_order)
    throw Broken("lost: the event is recorded as delivered, and never arrived", {position});
  event.recorded = true;
}

void Truth::died(Incarnation worker, int max_in_flight) {
  if (dead_.emplace(worker, true).second)
    allowed_ += max_in_flight;
}

}  // namespace simulate
