/*
 * blocked_keys.h: the blocked keys of ordered sinks. The events of a blocked key wait for one event, the key's
 * blocker: a failing event, or a dead letter where the sink's on_dead_letter is 'block'. When the worker reads a
 * row behind the blocker, it marks the row in the table (blocked_by = group). So memory holds one entry per key,
 * however many rows wait, and a restart rebuilds the entries from the rows. When the blocker is sent, dead or
 * deleted, the key drains: its marked rows are claimed first, in order of position. Then the key is free.
 *
 * Two things hold at any time, and blocked_keys.cpp alone keeps them:
 * - A row is marked with the group that its key has when the mark is written: nothing would come back to another one.
 * - An entry counts only in the term of its sink's shard in which it was made. A shard that is given up begins a new
 *   term, which makes all of its keys free at once, however many they are, and whether or not it is taken over again.
 *   The entries that do not count are removed in steps.
 */
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "dispatch/memory.h"
#include "dispatch/shard_set.h"
#include "dispatch/types.h"

namespace dispatch {

enum class KeyState : uint8_t {
  FREE,     /* the key has no entry; next: DRAINING (every new entry starts there) */
  DRAINING, /* its marked rows are being claimed; next: BLOCKED, FREE */
  BLOCKED   /* its blocker is not yet sent, or is a dead letter; next: DRAINING, FREE (this worker lost the sink or
               shard) */
};

struct BlockedKey {
  SinkId sink;
  KeyState state;
  bool seen;     /* the current check found the blocker in the table, or does not check this one */
  uint32_t term; /* of its shard, when the entry was made */
  uint64_t key_hash;
  int64_t blocker; /* BLOCKED: the blocker's position */
  int64_t group;   /* the value of blocked_by in the rows that are marked for this key */
  /* Its marked rows up to this position were claimed; of those that came back, the sink's cursor knows. */
  int64_t drained;

  /* A draining key can be blocked by a later event than the next marked row. */
  bool may_have_undrained_before(int64_t position) const noexcept { return drained + 1 < position; }
};

/* Keys of one sink and state that take turns: the first one moves to the end. */
struct KeyRotation {
  List<BlockedKey> keys;
  int64_t low = INT64_MAX;      /* no key has a row to be claimed below */
  int64_t next_low = INT64_MAX; /* nor one that has had a turn, came or was set back in this pass */
  size_t left = 0;              /* turns until the pass ends, and next_low becomes low */

  void lowered_to(int64_t position) noexcept;
  void key_left() noexcept;
  BlockedKey &turn() noexcept;
};

class BlockedKeys {
public:
  /* A check, lowest() and forget_some() visit at most so many keys, however many there are. The simulator sets it to
   * a few, which are two at least. */
  static constexpr size_t VISITED_MAX = 2000;
  void visit_at_most(size_t n) noexcept { visited_max_ = n; }

  BlockedKeys();
  BlockedKeys(const BlockedKeys &) = delete;
  BlockedKeys &operator=(const BlockedKeys &) = delete;
  ~BlockedKeys();

  bool any() const noexcept { return !keys_.empty(); }

  /* NULL when the key is free. The pointer is valid until the key becomes free. */
  const BlockedKey *find(SinkId sink, uint64_t key_hash) const noexcept {
    return keys_.empty() ? nullptr : look_up(sink, key_hash);
  }

  /* Returns the key if an event before `position` blocks it, otherwise NULL. */
  const BlockedKey *find_before(SinkId sink, uint64_t key_hash, int64_t position) const noexcept {
    const BlockedKey *key = find(sink, key_hash);
    return key && key->state == KeyState::BLOCKED && key->blocker < position ? key : nullptr;
  }

  /* The event at `position` blocks its key, unless an earlier event does. Without a key (hash 0) it does nothing.
   * Returns the position of the former blocker, 0 if there was none: its row is not marked, but the rows behind it
   * are. */
  int64_t block(SinkId sink, uint64_t key_hash, int64_t position) noexcept;

  /* Marked rows of the key were found, none of them before `first`: the key drains, unless it is blocked. */
  void drain(SinkId sink, uint64_t key_hash, int64_t group, int64_t first = 1) noexcept;

  /* The event was sent, became a dead letter or was deleted: its key drains. No-op unless the event is the blocker.
   */
  void release(SinkId sink, uint64_t key_hash, int64_t position) noexcept;
  /* The same, for a caller that knows only the position. */
  void release(int64_t position) noexcept;
  /* A row was read. If it is the blocker of another key or of another sink (its columns were updated), that key is
   * released. */
  void row_seen(SinkId sink, uint64_t key_hash, int64_t position) noexcept;

  /* A row is being marked, with this group when that was decided. If its key is free or draining by now, the key
   * drains again from this row. Returns the group of the key, with which it is to be marked. */
  int64_t marked(SinkId sink, uint64_t key_hash, int64_t group, int64_t position) noexcept;

  /* drained_to(): a draining key has claimed its rows up to `position`. drain_again_from(): if it drains, the row at
   * `position` must be claimed again. */
  void drained_to(SinkId sink, uint64_t key_hash, int64_t position) noexcept;
  void drain_again_from(SinkId sink, uint64_t key_hash, int64_t position) noexcept;
  /* All draining keys start again with their first marked row. */
  void drain_all_again() noexcept;

  bool any_draining(SinkId sink) const noexcept;
  /* Writes the hashes of draining keys of the sink and returns their number. The keys take turns: each is returned
   * once before any is returned again. */
  size_t next_draining(SinkId sink, std::span<uint64_t> key_hashes) noexcept;

  void forget(SinkId sink, uint64_t key_hash) noexcept;
  /* The sink's keys whose shard is not in `known` are free from now on. */
  void forget_unknown(SinkId sink, const ShardSet &known) noexcept;
  void forget_sink(SinkId sink) noexcept { forget_unknown(sink, {}); }
  /* Entries are left that do not count: forget_some() should be called soon, and removes some of them. */
  bool is_forgetting() const noexcept { return n_over_ > 0; }
  void forget_some() noexcept;

  /*
   * A blocker's row can disappear without notice (deleted while in flight, TRUNCATE), so blockers are looked up
   * regularly. check_begin() returns the positions of the next 2,000, and at least one of each sink; the caller
   * reports each one that is in the table with check_seen(); check_unseen() returns the others. Both results are
   * valid until the next call of either.
   */
  bool checked_at_once() const noexcept; /* one check covers all blockers */
  std::span<const int64_t> check_begin() noexcept;
  void check_seen(SinkId sink, uint64_t key_hash, int64_t position) noexcept;
  std::span<const int64_t> check_unseen() noexcept;

  /* A lower bound: every row of these keys that is still to be claimed is at or above it. INT64_MAX when the sink has
   * no such keys. With more than 2,000 keys it rises only when all of them have had a turn. */
  int64_t lowest(SinkId sink) const noexcept;

  /* How many entries the checks and lowest() have visited, for tests of their cost. */
  uint64_t visited() const noexcept { return visited_; }

private:
  using Place = List<BlockedKey>::iterator;
  /* The keys of one sink by state, so that finding the few draining keys does not read 100,000 blocked ones. */
  struct Lists {
    KeyRotation draining, blocked;
    uint32_t terms[SHARDS] = {};
    uint32_t n_counting[SHARDS] = {}; /* entries that count */
    size_t n_over = 0;                /* entries that do not */

    bool is_empty() const noexcept { return draining.keys.empty() && blocked.keys.empty(); }
  };

  bool counts(const BlockedKey &key) const noexcept;
  const Place *entry_of(SinkId sink, uint64_t key_hash) const noexcept;
  const BlockedKey *look_up(SinkId sink, uint64_t key_hash) const noexcept;
  Place enter(SinkId sink, uint64_t key_hash, int64_t group) noexcept;
  KeyRotation &rotation_of(const BlockedKey &key) noexcept;
  void note_lowest(const BlockedKey &key) noexcept;
  void change_state(Place key, KeyState next) noexcept;
  void set_blocker(Place key, int64_t position) noexcept;
  void forget_blocker(Place key) noexcept;
  BlockedKey *turn(KeyRotation &turns) noexcept;
  size_t remove_some(const Lists &lists, KeyRotation &turns, size_t visits) noexcept;

  HashMap<KeyId, Place, KeyIdHash> keys_;
  HashMap<SinkId, Lists> lists_;
  HashMap<int64_t, Place> blockers_; /* by the blocker's position */
  Vector<int64_t> asked_;            /* positions of blockers … */
  Vector<KeyId> asked_for_;          /* … and their keys */
  size_t n_over_ = 0;
  size_t visited_max_ = VISITED_MAX;
  mutable uint64_t visited_ = 0;
};

}  // namespace dispatch
