/*
 * shards.h: which shards are this worker's. Keys are spread by hash over 256 fixed shards, shards over the workers of
 * a database: shard % workers. A shard belongs to one worker at a time: that, and no lock held over the network,
 * keeps two workers off one event.
 *
 * When the number of workers changes, a shard goes to its new owner at once, but for the sinks of which its former
 * owner still has events of the shard in flight: those sinks wait until that part has drained (ended and recorded).
 * So a sink that hangs delays only its own part of a handoff. What a worker must know of a shard it reads from the
 * rows, as after a restart.
 * While 32 requests hung, a change of outbox.workers 1 -> 4 -> 2 -> 1 delayed another sink's events by 20 ms at
 * most; with a million events waiting behind those requests by 1.1 s, because the new owner of a shard reads its
 * rows from the beginning.
 */
#pragma once

#include "dispatch/shard_set.h"
#include "dispatch/time.h"

namespace dispatch {

/* A shard, as this worker has it for one sink. */
enum class ShardState : uint8_t {
  NOT_OURS, /* another worker's, or one still has events of it in flight; next: FRESH */
  FRESH,    /* just taken: which of its keys are blocked is not yet read; next: OURS, DRAINING, NOT_OURS */
  OURS,     /* next: DRAINING, NOT_OURS, FRESH (another sink has got the name) */
  DRAINING  /* given away, with events of this worker in flight; next: NOT_OURS */
};

/* What a worker keeps for each of its sinks. Zeroed memory is a sink that has no shard. */
class SinkShards {
public:
  bool may_claim(int shard) const { return state_[shard] == ShardState::FRESH || state_[shard] == ShardState::OURS; }
  bool is_fresh(int shard) const { return state_[shard] == ShardState::FRESH; }
  bool any_fresh() const { return n_fresh_ > 0; }
  bool any_draining() const { return n_draining_ > 0; }
  ShardSet draining() const noexcept;
  /* Those of which this worker knows which keys are blocked. */
  ShardSet known() const noexcept;

  /* A new sink, or another one of the same name, takes part in the shards that its worker has. `draining_anywhere`:
   * shards that a worker, maybe this one, gave away while it has events of this sink in flight. */
  void begin(const ShardSet &mine, const ShardSet &draining_anywhere) noexcept;
  /* Those of which it has events in flight drain from now on. */
  void give_away(const ShardSet &given, const uint32_t (&in_flight)[SHARDS]) noexcept;
  /* True when shards have drained. */
  bool note_drained(const uint32_t (&in_flight)[SHARDS]) noexcept;
  /* True when the sink may claim from shards from which it could not before: it begins at the beginning. */
  bool update(const ShardSet &mine, const ShardSet &draining_anywhere) noexcept;
  /* The rows of the fresh shards were asked for blocked keys. */
  void fresh_read() noexcept;

private:
  void change_state(int shard, ShardState next) noexcept;

  ShardState state_[SHARDS];
  int n_fresh_, n_draining_;
};
static_assert(std::is_trivial_v<SinkShards>);

/* A worker of the database, as its slot in shared memory shows it. */
struct PresentWorker {
  int index;
  ShardSet shards; /* no other worker has them */
};

class Shards {
public:
  void init(int index) noexcept { index_ = index; }

  const ShardSet &mine() const noexcept { return mine_; }
  /* So many workers share the shards; 0 = the launcher has not yet said. */
  int workers() const noexcept { return workers_; }
  /* This worker is one too many, and has no shard any more. */
  bool superfluous() const noexcept { return workers_ > 0 && index_ >= workers_ && mine_.empty(); }

  /* Gives away the shards whose new owner is present, takes those that nobody has. `workers`: how many share the
   * shards, 0 = unknown. Returns what was given away. */
  ShardSet exchange(int workers, const PresentWorker *present, int n_present) noexcept;

  /* When to exchange again, if that is asked for. */
  Moment exchange_at() const noexcept { return exchange_at_; }
  /* A sink has gained shards. Its rows are read from the beginning: shards that become free within the next 100 ms
   * are taken together. */
  void gained(Moment now) noexcept;

private:
  int index_ = 0, workers_ = 0;
  ShardSet mine_ = {};
  Moment exchange_at_ = MOMENT_NONE;
};

}  // namespace dispatch
