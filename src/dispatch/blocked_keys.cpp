/*
 * blocked_keys.cpp: each key is in two hash tables, by sink and key hash and by the position of its blocker, and in
 * the list of its sink and state.
 * An entry that does not count is never found. Where a list is gone through, it is removed when its turn comes, or
 * makes the answer a lower bound.
 * A key drains only up to its sink's cursor: after the cursor was set back, unmarked rows of the key may lie before
 * marked ones. At most 2,000 keys are visited per check, however many there are: to visit a million takes 270 ms, and
 * lowest() is asked ten times a second.
 */
#include "dispatch/blocked_keys.h"

#include "dispatch/fault_point.h"

#include <algorithm>
#include <cassert>
#include <iterator>
#include <utility>

namespace dispatch {

BlockedKeys::BlockedKeys() = default;
BlockedKeys::~BlockedKeys() = default;

/* ---- entries that count -------------------------------------------------------------------------------------- */

bool BlockedKeys::counts(const BlockedKey &key) const noexcept {
  return key.term == lists_.find(key.sink)->second.terms[shard_of(key.key_hash, 0)];
}

/* NULL when the key is free. */
const BlockedKeys::Place *BlockedKeys::entry_of(SinkId sink, uint64_t key_hash) const noexcept {
  const auto found = keys_.find({sink, key_hash});
  return found == keys_.end() || !counts(*found->second) ? nullptr : &found->second;
}

const BlockedKey *BlockedKeys::look_up(SinkId sink, uint64_t key_hash) const noexcept {
  const Place *entry = entry_of(sink, key_hash);
  return entry ? &**entry : nullptr;
}

/* ---- states -------------------------------------------------------------------------------------------------- */

[[maybe_unused]] static bool may_follow(KeyState state, KeyState next) {
  switch (state) {
  case KeyState::FREE:
    return next == KeyState::DRAINING;
  case KeyState::DRAINING:
    return next == KeyState::BLOCKED || next == KeyState::FREE;
  case KeyState::BLOCKED:
    return next == KeyState::DRAINING || next == KeyState::FREE;
  }
  return false;
}

KeyRotation &BlockedKeys::rotation_of(const BlockedKey &key) noexcept {
  Lists &lists = lists_.find(key.sink)->second;
  return key.state == KeyState::BLOCKED ? lists.blocked : lists.draining;
}

/* Erases the key's entry in blockers_, unless another key has taken the position over. */
void BlockedKeys::forget_blocker(Place key) noexcept {
  const auto entry = blockers_.find(key->blocker);
  if (entry != blockers_.end() && &*entry->second == &*key)
    blockers_.erase(entry);
  key->blocker = 0;
}

void BlockedKeys::change_state(Place key, KeyState next) noexcept {
  assert(may_follow(key->state, next));
  OUTBOX_STATE_CHANGES("KeyState", key->state, next);
  KeyRotation &from = rotation_of(*key);
  if (key->state == KeyState::BLOCKED)
    forget_blocker(key);
  key->state = next;
  if (next == KeyState::FREE) {
    Lists &lists = lists_.find(key->sink)->second;
    if (counts(*key))
      lists.n_counting[shard_of(key->key_hash, 0)]--;
    else
      lists.n_over--, n_over_--;
    keys_.erase({key->sink, key->key_hash});
    from.keys.erase(key);
    from.key_left();
    return;
  }
  if (next == KeyState::DRAINING) {
    key->drained = 0;
    key->seen = true;
  }
  List<BlockedKey> &to = rotation_of(*key).keys;
  to.splice(to.end(), from.keys, key);
  from.key_left();
}

/* Returns the key's entry; a new one starts as DRAINING. The caller calls note_lowest(). */
BlockedKeys::Place BlockedKeys::enter(SinkId sink, uint64_t key_hash, int64_t group) noexcept {
  if (const auto found = keys_.find({sink, key_hash}); found != keys_.end()) {
    if (counts(*found->second))
      return found->second;
    change_state(found->second, KeyState::FREE);
  }
  Lists &lists = lists_[sink];
  List<BlockedKey> &list = lists.draining.keys;
  const int shard = shard_of(key_hash, 0);
  const auto key = list.insert(list.end(), {sink, KeyState::FREE, true, lists.terms[shard], key_hash, 0, group, 0});
  lists.n_counting[shard]++;
  keys_[{sink, key_hash}] = key;
  change_state(key, KeyState::DRAINING);
  return key;
}

/* ---- blockers ------------------------------------------------------------------------------------------------ */

void BlockedKeys::set_blocker(Place key, int64_t position) noexcept {
  if (const auto entry = blockers_.find(position); entry == blockers_.end()) {
    blockers_[position] = key;
  } else if (&*entry->second != &*key) { /* the blocker's row was updated to another key */
    const auto former = std::exchange(entry->second, key);
    change_state(former, KeyState::DRAINING);
    note_lowest(*former); /* also if it does not count any more */
  }
  if (key->state == KeyState::BLOCKED)
    forget_blocker(key);
  else
    change_state(key, KeyState::BLOCKED);
  key->blocker = position;
  note_lowest(*key);
}

int64_t BlockedKeys::block(SinkId sink, uint64_t key_hash, int64_t position) noexcept {
  if (key_hash == 0)
    return 0;
  const bool is_new = find(sink, key_hash) == nullptr;
  const auto key = enter(sink, key_hash, position);
  if (is_new)
    key->drained = position; /* no row is marked yet */
  if (key->state == KeyState::BLOCKED && key->blocker <= position)
    return 0;
  const int64_t former = key->blocker;
  set_blocker(key, position);
  return former;
}

void BlockedKeys::drain(SinkId sink, uint64_t key_hash, int64_t group, int64_t first) noexcept {
  if (key_hash == 0)
    return;
  const bool is_new = find(sink, key_hash) == nullptr;
  const auto key = enter(sink, key_hash, group);
  if (is_new)
    key->drained = first - 1;
  key->group = group;
  note_lowest(*key);
}

void BlockedKeys::release(int64_t position) noexcept {
  if (blockers_.empty())
    return;
  const auto found = blockers_.find(position);
  if (found == blockers_.end())
    return;
  const auto key = found->second;
  change_state(key, KeyState::DRAINING);
  note_lowest(*key);
}

void BlockedKeys::release(SinkId sink, uint64_t key_hash, int64_t position) noexcept {
  const BlockedKey *key = find(sink, key_hash);
  if (key && key->state == KeyState::BLOCKED && key->blocker == position)
    release(position);
}

void BlockedKeys::row_seen(SinkId sink, uint64_t key_hash, int64_t position) noexcept {
  const BlockedKey *key = find(sink, key_hash);
  if (key == nullptr || key->state != KeyState::BLOCKED || key->blocker != position)
    release(position);
}

/* ---- draining ------------------------------------------------------------------------------------------------ */

int64_t BlockedKeys::marked(SinkId sink, uint64_t key_hash, int64_t group, int64_t position) noexcept {
  if (find(sink, key_hash) == nullptr)
    drain(sink, key_hash, group);
  const Place *entry = entry_of(sink, key_hash);
  if (entry == nullptr)
    return group;
  BlockedKey &key = **entry;
  key.drained = std::min(key.drained, position - 1);
  note_lowest(key);
  return key.group;
}

void BlockedKeys::drained_to(SinkId sink, uint64_t key_hash, int64_t position) noexcept {
  if (const Place *entry = entry_of(sink, key_hash)) {
    (*entry)->drained = position;
    note_lowest(**entry);
  }
}

void BlockedKeys::drain_again_from(SinkId sink, uint64_t key_hash, int64_t position) noexcept {
  if (keys_.empty())
    return;
  const Place *entry = entry_of(sink, key_hash);
  if (entry && (*entry)->state == KeyState::DRAINING) {
    (*entry)->drained = std::min((*entry)->drained, position - 1);
    note_lowest(**entry);
  }
}

void BlockedKeys::drain_all_again() noexcept {
  for (auto &[sink, lists] : lists_)
    for (BlockedKey &key : lists.draining.keys) {
      key.drained = 0;
      note_lowest(key);
    }
}

bool BlockedKeys::any_draining(SinkId sink) const noexcept {
  if (keys_.empty())
    return false;
  const auto found = lists_.find(sink);
  return found != lists_.end() && !found->second.draining.keys.empty();
}

size_t BlockedKeys::next_draining(SinkId sink, std::span<uint64_t> key_hashes) noexcept {
  const auto found = lists_.find(sink);
  if (found == lists_.end())
    return 0;
  KeyRotation &draining = found->second.draining;
  size_t n = 0;
  for (size_t i = std::min(key_hashes.size(), draining.keys.size()); i > 0; i--)
    if (const BlockedKey *key = turn(draining))
      key_hashes[n++] = key->key_hash;
  return n;
}

/* ---- forgetting ---------------------------------------------------------------------------------------------- */

void BlockedKeys::forget(SinkId sink, uint64_t key_hash) noexcept {
  if (const Place *entry = entry_of(sink, key_hash))
    change_state(*entry, KeyState::FREE);
}

void BlockedKeys::forget_unknown(SinkId sink, const ShardSet &known) noexcept {
  const auto found = lists_.find(sink);
  if (found == lists_.end())
    return;
  Lists &lists = found->second;
  for (int shard = 0; shard < SHARDS; shard++)
    if (lists.n_counting[shard] > 0 && !known.has(shard)) {
      const size_t n = std::exchange(lists.n_counting[shard], 0);
      lists.terms[shard]++;
      lists.n_over += n;
      n_over_ += n;
    }
  forget_some();
}

/* The key whose turn it is. NULL: its entry did not count, and is removed. */
BlockedKey *BlockedKeys::turn(KeyRotation &turns) noexcept {
  BlockedKey &key = turns.turn();

  if (counts(key))
    return &key;
  change_state(std::prev(turns.keys.end()), KeyState::FREE);
  return nullptr;
}

/* Returns how many keys it has visited. */
size_t BlockedKeys::remove_some(const Lists &lists, KeyRotation &turns, size_t visits) noexcept {
  const size_t most = std::min(visits, turns.keys.size());
  size_t n = 0;

  for (; n < most && lists.n_over > 0; n++)
    (void)turn(turns);
  visited_ += n;
  return n;
}

/* Sinks one after the other. Each visits keys in both of its states, so that many that count do not hold the others
 * up. */
void BlockedKeys::forget_some() noexcept {
  size_t left = visited_max_;

  for (auto at = lists_.begin(); at != lists_.end();) {
    Lists &lists = at->second;
    left -= remove_some(lists, lists.draining, (left + 1) / 2);
    left -= remove_some(lists, lists.blocked, left);
    at = lists.is_empty() ? lists_.erase(at) : std::next(at);
  }
}

/* ---- turns --------------------------------------------------------------------------------------------------- */

/* The lowest row of the key that may still have to be claimed. A redriven row is marked also before the blocker; of a
 * draining key, the position of the next marked row is unknown. */
static int64_t lowest_of(const BlockedKey &key) noexcept {
  return key.state == KeyState::BLOCKED ? std::min(key.blocker, key.drained + 1) : key.drained + 1;
}

void KeyRotation::lowered_to(int64_t position) noexcept {
  low = std::min(low, position);
  next_low = std::min(next_low, position);
}

void KeyRotation::key_left() noexcept {
  if (keys.empty())
    low = next_low = INT64_MAX;
  left = std::min(left, keys.size());
}

/* Keys come at the end. So after as many turns as there were keys, each of them has had one or has left. */
BlockedKey &KeyRotation::turn() noexcept {
  if (left == 0) {
    left = keys.size();
    next_low = INT64_MAX;
  }
  keys.splice(keys.end(), keys, keys.begin());
  BlockedKey &key = keys.back();
  next_low = std::min(next_low, lowest_of(key));
  if (--left == 0)
    low = next_low;
  return key;
}

/* The key is new in its list, or its rows are to be claimed from an earlier one. */
void BlockedKeys::note_lowest(const BlockedKey &key) noexcept {
  rotation_of(key).lowered_to(lowest_of(key));
}

/* ---- the check ----------------------------------------------------------------------------------------------- */

bool BlockedKeys::checked_at_once() const noexcept {
  return blockers_.size() <= visited_max_;
}

std::span<const int64_t> BlockedKeys::check_begin() noexcept {
  const size_t n_blocked = blockers_.size();

  asked_.clear();
  asked_for_.clear();
  for (auto &[sink, lists] : lists_) {
    /* Each sink's share, rounded up: the share is less than 1 of a sink with few keys. */
    const size_t n_of_sink = lists.blocked.keys.size();
    const size_t n = n_blocked <= visited_max_ ? n_of_sink : (visited_max_ * n_of_sink + n_blocked - 1) / n_blocked;
    for (size_t i = 0; i < n; i++) {
      BlockedKey *key = turn(lists.blocked);
      visited_++;
      if (key == nullptr)
        continue;
      key->seen = false;
      asked_.push_back(key->blocker);
      asked_for_.push_back({sink, key->key_hash});
    }
  }
  return asked_;
}

void BlockedKeys::check_seen(SinkId sink, uint64_t key_hash, int64_t position) noexcept {
  if (keys_.empty())
    return;
  const Place *entry = entry_of(sink, key_hash);
  if (entry && (*entry)->blocker == position)
    (*entry)->seen = true;
}

std::span<const int64_t> BlockedKeys::check_unseen() noexcept {
  size_t n = 0;

  for (size_t i = 0; i < asked_.size(); i++) {
    const Place *entry = entry_of(asked_for_[i].sink, asked_for_[i].key_hash);
    visited_++;
    if (entry == nullptr || (*entry)->seen || (*entry)->blocker != asked_[i])
      continue; /* it was seen, or the key has another state or blocker by now */
    asked_[n] = asked_[i];
    asked_for_[n++] = asked_for_[i];
  }
  asked_.resize(n);
  asked_for_.resize(n);
  return asked_;
}

int64_t BlockedKeys::lowest(SinkId sink) const noexcept {
  int64_t lowest = INT64_MAX;
  const auto found = keys_.empty() ? lists_.end() : lists_.find(sink);
  if (found == lists_.end())
    return lowest;
  for (const KeyRotation *turns : {&found->second.draining, &found->second.blocked}) {
    if (keys_.size() > visited_max_) {
      lowest = std::min(lowest, turns->keys.empty() ? INT64_MAX : turns->low);
      continue;
    }
    visited_ += turns->keys.size();
    for (const BlockedKey &key : turns->keys)
      lowest = std::min(lowest, lowest_of(key));
  }
  return lowest;
}

}  // namespace dispatch
