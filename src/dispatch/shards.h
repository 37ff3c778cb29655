/*
 * shards.h: which shards this worker owns. Keys are spread by hash over 256 fixed shards, and shards over the
 * workers of a database: shard % workers. A shard has one owner at a time; that, and no lock during a network
 * request, keeps two workers from sending the same event.
 * When the number of workers changes, a shard moves to its new owner at once, except for sinks of which the former
 * owner still has events of this shard in flight: those sinks wait until these events have ended and are recorded.
 * So a hanging sink delays only its own part of a shard's handoff. The new owner reads the state of the shard from
 * the rows, as after a restart.
 * Measured while 32 requests hung: a change of outbox.workers 1 -> 4 -> 2 -> 1 delayed another sink's events by at
 * most 20 ms; with a million events queued behind those requests by 1.1 s, because the new owner reads a shard's
 * rows from the beginning.
 */
#pragma once

#include "dispatch/shard_set.h"
#include "dispatch/time.h"

namespace dispatch {

/* The state of a shard in this worker, for one sink. */
enum class ShardState : uint8_t {
  NOT_OURS, /* another worker owns it, or still has events of it in flight; next: FRESH */
  FRESH,    /* just taken over, its blocked keys are not yet read; next: OURS, DRAINING, NOT_OURS */
  OURS,     /* next: DRAINING, NOT_OURS, FRESH (another sink has taken the name) */
  DRAINING  /* handed off, with events of this worker still in flight; next: NOT_OURS */
};

/* The shards of one sink. Zeroed memory is a sink without shards. */
class SinkShards {
public:
  bool may_claim(int shard) const { return state_[shard] == ShardState::FRESH || state_[shard] == ShardState::OURS; }
  bool is_fresh(int shard) const { return state_[shard] == ShardState::FRESH; }
  bool any_fresh() const { return n_fresh_ > 0; }
  bool any_draining() const { return n_draining_ > 0; }
  ShardSet draining() const noexcept;
  /* The shards whose blocked keys this worker has read. */
  ShardSet known() const noexcept;

  /* A new sink, or another sink with the same name: it starts with the worker's shards `mine`. `draining_anywhere`:
   * shards that any worker has handed off while it has events of this sink in flight. */
  void begin(const ShardSet &mine, const ShardSet &draining_anywhere) noexcept;
  /* The shards of `given` that have events in flight drain from now on; the others are handed off at once. */
  void give_away(const ShardSet &given, const uint32_t (&in_flight)[SHARDS]) noexcept;
  /* Hands off the draining shards that have no events in flight any more. True when there were any. */
  bool note_drained(const uint32_t (&in_flight)[SHARDS]) noexcept;
  /* True when the sink has gained shards: the caller must read its rows from the beginning. */
  bool update(const ShardSet &mine, const ShardSet &draining_anywhere) noexcept;
  /* The blocked keys of all fresh shards were read from the rows. */
  void fresh_read() noexcept;

private:
  void change_state(int shard, ShardState next) noexcept;

  ShardState state_[SHARDS];
  int n_fresh_, n_draining_;
};
static_assert(std::is_trivial_v<SinkShards>);

/* A running worker of the database, as its slot in shared memory shows it. */
struct PresentWorker {
  int index;
  ShardSet shards;           /* no other worker owns them */
  bool stands_still = false; /* it has made no round for long: it is given no shard, and keeps those that it has */
};

class Shards {
public:
  void init(int index) noexcept { index_ = index; }

  const ShardSet &mine() const noexcept { return mine_; }
  /* How many workers share the shards; 0 = the launcher has not set it yet. */
  int workers() const noexcept { return workers_; }
  /* The number of workers was reduced, and this worker has handed off its last shard. */
  bool superfluous() const noexcept { return workers_ > 0 && index_ >= workers_ && mine_.empty(); }

  /* Hands off the shards whose new owner is running, and takes over those without an owner. `workers`: how many share
   * the shards, 0 = unknown. Returns the shards that were handed off. If a new owner stands still, it is to be called
   * again at exchange_at(). */
  ShardSet exchange(int workers, const PresentWorker *present, int n_present, Moment now) noexcept;
  /* This worker keeps shards of one that stands still. */
  bool keeps_for_another() const noexcept { return keeps_for_another_; }

  /* When to call exchange() again, if another worker asks for it, or if this one keeps_for_another(). */
  Moment exchange_at() const noexcept { return exchange_at_; }
  /* A sink has gained shards, so its rows are read from the beginning. The next exchange waits 100 ms, so that shards
   * that become free in that time are read together. */
  void gained(Moment now) noexcept;

private:
  int index_ = 0, workers_ = 0;
  bool keeps_for_another_ = false;
  ShardSet mine_ = {};
  Moment exchange_at_ = MOMENT_NONE;
};

}  // namespace dispatch
