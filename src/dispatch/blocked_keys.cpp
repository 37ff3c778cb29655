/*
 * blocked_keys.cpp: each key is in two hash tables, by sink and key hash and by the position of its blocker, and in
 * the list of its sink and state. What a new entry needs was allocated before (make_room()).
 * A key drains only up to its sink's cursor: after the cursor was set back, unmarked rows of the key may lie before
 * marked ones. At most about 2,000 blockers are checked per poll: 100,000 blocked keys cost 0.6 % of a core.
 */
#include "dispatch/blocked_keys.h"

#include "dispatch/fault_point.h"

#include <algorithm>
#include <cassert>
#include <iterator>
#include <utility>

namespace dispatch {

/* Blockers per check: its cost must not grow with the number of failing keys. */
static constexpr size_t CHECKED_MAX = 2000;

BlockedKeys::BlockedKeys() = default;
BlockedKeys::~BlockedKeys() = default;

const BlockedKey *BlockedKeys::look_up(SinkId sink, uint64_t key_hash) const noexcept {
  const auto found = keys_.find({sink, key_hash});
  return found == keys_.end() ? nullptr : &*found->second;
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

BlockedKeys::List &BlockedKeys::list_of(const BlockedKey &key) noexcept {
  Lists &lists = lists_.find(key.sink)->second;
  return key.state == KeyState::BLOCKED ? lists.blocked : lists.draining;
}

/* Erases the key's entry in blockers_, unless another key has taken the position over. */
void BlockedKeys::forget_blocker(List::iterator key) noexcept {
  const auto entry = blockers_.find(key->blocker);
  if (entry != blockers_.end() && &*entry->second == &*key)
    blockers_.erase(entry);
  key->blocker = 0;
}

void BlockedKeys::change_state(List::iterator key, KeyState next) noexcept {
  assert(may_follow(key->state, next));
  OUTBOX_STATE_CHANGES("KeyState", key->state, next);
  List &from = list_of(*key);
  if (key->state == KeyState::BLOCKED)
    forget_blocker(key);
  key->state = next;
  if (next == KeyState::FREE) {
    keys_.erase({key->sink, key->key_hash});
    from.erase(key);
    return;
  }
  if (next == KeyState::DRAINING) {
    key->drained = 0;
    key->seen = true;
  }
  List &to = list_of(*key);
  to.splice(to.end(), from, key);
}

void BlockedKeys::make_room() {
  spare_key_.make(keys_);
  spare_lists_.make(lists_);
  spare_blocker_.make(blockers_);
  spare_.resize(1);
  has_room_ = true;
}

/* Returns the key's entry; a new one starts as DRAINING. */
BlockedKeys::List::iterator BlockedKeys::enter(SinkId sink, uint64_t key_hash, int64_t group) noexcept {
  assert(has_room_);
  if (const auto found = keys_.find({sink, key_hash}); found != keys_.end())
    return found->second;
  auto lists = lists_.find(sink);
  if (lists == lists_.end())
    lists = spare_lists_.insert(lists_, sink, {});
  List &list = lists->second.draining;
  const auto key = spare_.begin();
  *key = {sink, KeyState::FREE, true, key_hash, 0, group, 0};
  list.splice(list.end(), spare_);
  spare_key_.insert(keys_, {sink, key_hash}, key);
  has_room_ = false;
  change_state(key, KeyState::DRAINING);
  return key;
}

/* ---- blockers ------------------------------------------------------------------------------------------------ */

void BlockedKeys::set_blocker(List::iterator key, int64_t position) noexcept {
  if (const auto entry = blockers_.find(position); entry == blockers_.end()) {
    spare_blocker_.insert(blockers_, position, key);
    has_room_ = false;
  } else if (&*entry->second != &*key) { /* the blocker's row was updated to another key */
    const auto former = std::exchange(entry->second, key);
    change_state(former, KeyState::DRAINING);
  }
  if (key->state == KeyState::BLOCKED)
    forget_blocker(key);
  else
    change_state(key, KeyState::BLOCKED);
  key->blocker = position;
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

void BlockedKeys::drain(SinkId sink, uint64_t key_hash, int64_t group) noexcept {
  if (key_hash != 0)
    enter(sink, key_hash, group)->group = group;
}

void BlockedKeys::release(int64_t position) noexcept {
  if (blockers_.empty())
    return;
  const auto found = blockers_.find(position);
  if (found != blockers_.end())
    change_state(found->second, KeyState::DRAINING);
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

void BlockedKeys::marked(SinkId sink, uint64_t key_hash, int64_t group, int64_t position) noexcept {
  if (find(sink, key_hash) == nullptr)
    drain(sink, key_hash, group);
  const auto key = keys_.find({sink, key_hash});
  if (key != keys_.end())
    key->second->drained = std::min(key->second->drained, position - 1);
}

void BlockedKeys::drained_to(SinkId sink, uint64_t key_hash, int64_t position) noexcept {
  if (const auto found = keys_.find({sink, key_hash}); found != keys_.end())
    found->second->drained = position;
}

void BlockedKeys::drain_again_from(SinkId sink, uint64_t key_hash, int64_t position) noexcept {
  if (keys_.empty())
    return;
  const auto found = keys_.find({sink, key_hash});
  if (found != keys_.end() && found->second->state == KeyState::DRAINING)
    found->second->drained = std::min(found->second->drained, position - 1);
}

void BlockedKeys::drain_all_again() noexcept {
  for (auto &[sink, lists] : lists_)
    for (BlockedKey &key : lists.draining)
      key.drained = 0;
}

bool BlockedKeys::any_draining(SinkId sink) const noexcept {
  if (keys_.empty())
    return false;
  const auto found = lists_.find(sink);
  return found != lists_.end() && !found->second.draining.empty();
}

size_t BlockedKeys::next_draining(SinkId sink, std::span<uint64_t> key_hashes) noexcept {
  const auto found = lists_.find(sink);
  if (found == lists_.end())
    return 0;
  List &list = found->second.draining;
  const size_t n = std::min(key_hashes.size(), list.size());
  for (size_t i = 0; i < n; i++) {
    key_hashes[i] = list.front().key_hash;
    list.splice(list.end(), list, list.begin());
  }
  return n;
}

/* ---- forgetting ---------------------------------------------------------------------------------------------- */

void BlockedKeys::forget(SinkId sink, uint64_t key_hash) noexcept {
  if (const auto found = keys_.find({sink, key_hash}); found != keys_.end())
    change_state(found->second, KeyState::FREE);
}

void BlockedKeys::forget_all(List &list, const ShardSet &but_shards) noexcept {
  for (auto key = list.begin(); key != list.end();) {
    const auto next = std::next(key);
    if (!but_shards.has(shard_of(key->key_hash, 0)))
      change_state(key, KeyState::FREE);
    key = next;
  }
}

void BlockedKeys::forget_unknown(SinkId sink, const ShardSet &known) noexcept {
  const auto found = lists_.find(sink);
  if (found == lists_.end())
    return;
  forget_all(found->second.draining, known);
  forget_all(found->second.blocked, known);
}

void BlockedKeys::forget_sink(SinkId sink) noexcept {
  forget_unknown(sink, {});
  lists_.erase(sink);
}

/* ---- the check ----------------------------------------------------------------------------------------------- */

uint32_t BlockedKeys::slices() const noexcept {
  return 1 + static_cast<uint32_t>(keys_.size() / CHECKED_MAX);
}

bool BlockedKeys::checked_at_once() const noexcept {
  return slices() == 1;
}

std::span<const int64_t> BlockedKeys::check_begin() noexcept {
  const uint32_t n_slices = slices();
  slice_ = (slice_ + 1) % n_slices;
  for (auto &[sink, lists] : lists_)
    for (BlockedKey &key : lists.blocked)
      key.seen = (key.key_hash >> 32) % n_slices != slice_;
  return check_unseen();
}

void BlockedKeys::check_seen(SinkId sink, uint64_t key_hash, int64_t position) noexcept {
  if (keys_.empty())
    return;
  const auto found = keys_.find({sink, key_hash});
  if (found != keys_.end() && found->second->blocker == position)
    found->second->seen = true;
}

std::span<const int64_t> BlockedKeys::check_unseen() noexcept {
  asked_.clear();
  try {
    for (const auto &[sink, lists] : lists_)
      for (const BlockedKey &key : lists.blocked)
        if (!key.seen)
          asked_.push_back(key.blocker);
  } catch (...) {
    return {};
  }
  return asked_;
}

int64_t BlockedKeys::lowest(SinkId sink) const noexcept {
  int64_t lowest = INT64_MAX;
  const auto found = keys_.empty() ? lists_.end() : lists_.find(sink);
  if (found == lists_.end())
    return lowest;
  for (const BlockedKey &key : found->second.blocked) /* a redriven row is marked also before the blocker */
    lowest = std::min({lowest, key.blocker, key.drained + 1});
  for (const BlockedKey &key : found->second.draining) /* the position of its next marked row is unknown */
    lowest = std::min(lowest, key.drained + 1);
  return lowest;
}

}  // namespace dispatch
