/*
 * shards.cpp: workers hand shards over among themselves; the launcher sets only their number. A shard is handed off
 * only when its new owner is running, so it is without an owner for at most one loop of the new one.
 * To end all workers and start them with the new number instead would save 375 lines of src. But the number changes
 * also where databases take turns on too few slots, and each time each worker would end: a request that takes longer
 * than outbox.shutdown_timeout would be sent again, and a sink that hangs would delay the others.
 */
#include "dispatch/shards.h"

#include "dispatch/fault_point.h"

#include <cassert>

namespace dispatch {

static constexpr int64_t TOGETHER_MS = 100, LOOK_AGAIN_MS = 1000;

[[maybe_unused]] static bool may_follow(ShardState state, ShardState next) {
  switch (state) {
  case ShardState::NOT_OURS:
    return next == ShardState::FRESH;
  case ShardState::FRESH:
  case ShardState::OURS:
    return true;
  case ShardState::DRAINING:
    return next == ShardState::NOT_OURS;
  }
  return false;
}

void SinkShards::change_state(int shard, ShardState next) noexcept {
  ShardState &state = state_[shard];

  if (next == state)
    return;
  assert(may_follow(state, next));
  OUTBOX_STATE_CHANGES("ShardState", state, next);
  n_fresh_ += (next == ShardState::FRESH) - (state == ShardState::FRESH);
  n_draining_ += (next == ShardState::DRAINING) - (state == ShardState::DRAINING);
  state = next;
}

ShardSet SinkShards::draining() const noexcept {
  ShardSet set = {};

  for (int shard = 0; shard < SHARDS && n_draining_ > 0; shard++)
    if (state_[shard] == ShardState::DRAINING)
      set.add(shard);
  return set;
}

ShardSet SinkShards::known() const noexcept {
  ShardSet set = {};

  for (int shard = 0; shard < SHARDS; shard++)
    if (state_[shard] == ShardState::OURS || state_[shard] == ShardState::DRAINING)
      set.add(shard);
  return set;
}

void SinkShards::begin(const ShardSet &mine, const ShardSet &draining_anywhere) noexcept {
  const ShardSet ours = mine - draining_anywhere;

  for (int shard = 0; shard < SHARDS; shard++)
    if (state_[shard] != ShardState::DRAINING)
      change_state(shard, ours.has(shard) ? ShardState::FRESH : ShardState::NOT_OURS);
}

void SinkShards::give_away(const ShardSet &given, const uint32_t (&in_flight)[SHARDS]) noexcept {
  for (int shard = 0; shard < SHARDS; shard++)
    if (given.has(shard))
      change_state(shard, in_flight[shard] > 0 ? ShardState::DRAINING : ShardState::NOT_OURS);
}

bool SinkShards::note_drained(const uint32_t (&in_flight)[SHARDS]) noexcept {
  const int before = n_draining_;

  for (int shard = 0; shard < SHARDS && n_draining_ > 0; shard++)
    if (state_[shard] == ShardState::DRAINING && in_flight[shard] == 0)
      change_state(shard, ShardState::NOT_OURS);
  return n_draining_ < before;
}

bool SinkShards::update(const ShardSet &mine, const ShardSet &draining_anywhere) noexcept {
  const ShardSet ours = mine - draining_anywhere;
  bool gained = false;

  for (int shard = 0; shard < SHARDS; shard++) {
    if (state_[shard] == ShardState::DRAINING)
      continue;
    if (!ours.has(shard)) {
      change_state(shard, ShardState::NOT_OURS);
    } else if (!may_claim(shard)) {
      change_state(shard, ShardState::FRESH);
      gained = true;
    }
  }
  return gained;
}

void SinkShards::fresh_read() noexcept {
  for (int shard = 0; shard < SHARDS && n_fresh_ > 0; shard++)
    if (state_[shard] == ShardState::FRESH)
      change_state(shard, ShardState::OURS);
}

static const PresentWorker *find_present(const PresentWorker *present, int n_present, int index) {
  for (int i = 0; i < n_present; i++)
    if (present[i].index == index)
      return &present[i];
  return nullptr;
}

ShardSet Shards::exchange(int workers, const PresentWorker *present, int n_present, Moment now) noexcept {
  ShardSet taken = {}, given = {};

  if (workers == 0)
    return given;
  workers_ = workers;
  keeps_for_another_ = false;
  for (int i = 0; i < n_present; i++)
    taken = taken | present[i].shards;
  for (int shard = 0; shard < SHARDS; shard++) {
    const int owner = shard % workers;
    if (mine_.has(shard)) {
      const PresentWorker *next = owner == index_ ? nullptr : find_present(present, n_present, owner);
      if (next && next->stands_still)
        keeps_for_another_ = true;
      else if (next)
        given.add(shard);
    } else if (owner == index_ && !taken.has(shard)) {
      mine_.add(shard);
    }
  }
  mine_ = mine_ - given;
  if (keeps_for_another_)
    exchange_at_ = moment_after(now, LOOK_AGAIN_MS);
  return given;
}

void Shards::gained(Moment now) noexcept {
  exchange_at_ = moment_after(now, TOGETHER_MS);
}

}  // namespace dispatch
