/*
 * blocked_keys.h: the keys of ordered sinks that wait for one event, their blocker: a failing event, or a dead letter
 * where the sink says so. Rows behind the blocker are marked in the table (blocked_by = group) when the worker comes
 * across them, so memory holds one entry per key, however many rows stand behind it, and a restart rebuilds the
 * entries from the rows. When the blocker is through, the key drains: its marked rows are claimed first, in order,
 * and then the key is free.
 */
#pragma once

#include <cstddef>
#include <cstdint>
#include <list>
#include <span>
#include <unordered_map>
#include <vector>

#include "dispatch/shard_set.h"
#include "dispatch/types.h"

namespace dispatch {

enum class KeyState : uint8_t {
  FREE,     /* it has no entry; next: DRAINING (every entry begins so) */
  DRAINING, /* its marked rows are claimed; next: BLOCKED, FREE */
  BLOCKED   /* its blocker is yet to be sent, or is dead; next: DRAINING, FREE (its sink or shard is another's) */
};

struct BlockedKey {
  SinkId sink;
  KeyState state;
  bool seen; /* its blocker stands in the table, or was not asked for */
  uint64_t key_hash;
  int64_t blocker; /* BLOCKED: the position of the event that the key waits for */
  int64_t group;   /* what the rows behind it are marked with */
  int64_t drained; /* DRAINING: the last marked row that was claimed */
};

class BlockedKeys {
public:
  BlockedKeys();
  BlockedKeys(const BlockedKeys &) = delete;
  BlockedKeys &operator=(const BlockedKeys &) = delete;
  ~BlockedKeys();

  bool any() const noexcept { return !keys_.empty(); }

  /* NULL when the key is free. Valid until the key is forgotten. */
  const BlockedKey *find(SinkId sink, uint64_t key_hash) const noexcept {
    return keys_.empty() ? nullptr : look_up(sink, key_hash);
  }

  /* The key, when an earlier event than the one at `position` blocks it; else NULL. */
  const BlockedKey *find_before(SinkId sink, uint64_t key_hash, int64_t position) const noexcept {
    const BlockedKey *key = find(sink, key_hash);
    return key && key->state == KeyState::BLOCKED && key->blocker < position ? key : nullptr;
  }

  /*
   * The event at `position` blocks its key, unless an earlier one does; one without a key (hash 0) blocks nothing.
   * `*replaced` is the blocker whose place it took, 0 if none: that row is not marked, and those behind it are.
   * False: out of memory.
   */
  bool block(SinkId sink, uint64_t key_hash, int64_t position, int64_t *replaced) noexcept;

  /* Marked rows of the key were found: it drains, unless it is blocked. False: out of memory. */
  bool drain(SinkId sink, uint64_t key_hash, int64_t group) noexcept;

  /* The event is through (sent, dead, deleted): its key drains. No-op unless it is the blocker. */
  void release(SinkId sink, uint64_t key_hash, int64_t position) noexcept;
  /* When only the position is known. */
  void release(int64_t position) noexcept;
  /* A row was read: the key that it blocked under another sink or key is released. */
  void row_seen(SinkId sink, uint64_t key_hash, int64_t position) noexcept;

  /* A row was marked: its key, if it is free by now or drains, must come back to it. False: out of memory. */
  bool marked(SinkId sink, uint64_t key_hash, int64_t group, int64_t position) noexcept;

  /* A draining key has claimed its rows up to this position; must claim the one at this position again. */
  void drained_to(SinkId sink, uint64_t key_hash, int64_t position) noexcept;
  void drain_again_from(SinkId sink, uint64_t key_hash, int64_t position) noexcept;
  /* Draining keys begin again with their first marked row. */
  void drain_all_again() noexcept;

  bool any_draining(SinkId sink) const noexcept;
  /* The hashes of keys of the sink that drain now, each once before one comes again; returns how many. */
  size_t next_draining(SinkId sink, std::span<uint64_t> key_hashes) noexcept;

  void forget(SinkId sink, uint64_t key_hash) noexcept;
  void forget_sink(SinkId sink) noexcept;
  /* Of the sink, those whose shard is not in the set. */
  void forget_unknown(SinkId sink, const ShardSet &known) noexcept;

  /*
   * Blockers can leave unseen (deleted in flight, truncated), so they are looked up from time to time: check_begin()
   * tells the positions of the next 2,000 or so, check_seen() takes note of one that stands in the table, and
   * check_unseen() tells the others. What they tell is valid until the next call of either, empty when there is no
   * memory: then the next check has to do.
   */
  bool checked_at_once() const noexcept; /* all in one check */
  std::span<const int64_t> check_begin() noexcept;
  void check_seen(SinkId sink, uint64_t key_hash, int64_t position) noexcept;
  std::span<const int64_t> check_unseen() noexcept;

  /* No row of these keys that is still to be claimed lies below; INT64_MAX when the sink has none. */
  int64_t lowest(SinkId sink) const noexcept;

private:
  /* The keys of one sink by state: with 100,000 blocked ones nobody walks all of them for a few that drain. A key
   * changes its list without an allocation, so that nothing can fail on the way. */
  using List = std::list<BlockedKey>;
  struct Lists {
    List draining, blocked;
  };

  const BlockedKey *look_up(SinkId sink, uint64_t key_hash) const noexcept;
  List::iterator enter(SinkId sink, uint64_t key_hash, int64_t group);
  List &list_of(const BlockedKey &key) noexcept;
  void change_state(List::iterator key, KeyState next) noexcept;
  void set_blocker(List::iterator key, int64_t position);
  void forget_blocker(List::iterator key) noexcept;
  void forget_all(List &list, const ShardSet &but_shards) noexcept;
  uint32_t slices() const noexcept;

  std::unordered_map<KeyId, List::iterator, KeyIdHash> keys_;
  std::unordered_map<SinkId, Lists> lists_;
  std::unordered_map<int64_t, List::iterator> blockers_; /* the key that a position blocks */
  std::vector<int64_t> asked_;
  uint32_t slice_ = 0;
};

}  // namespace dispatch
