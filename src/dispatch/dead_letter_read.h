/*
 * dead_letter_read.h: how far the worker has read the dead letters. It must know their keys: in a sink with
 * on_dead_letter 'block' each blocks its key, and in every ordered sink a later event of the key is recorded with
 * care (out_of_order.h). To read a million of them takes two seconds, so each round reads a slice of them, in order
 * of position, and events are delivered meanwhile. Until all are known, the key of each claimed event of a blocking
 * sink is looked up by itself (ClaimRound::hold_behind_dead_letters()). A dead letter that is redriven before its
 * turn is a pending row by then, so the redriven rows of all sinks are read afterwards (troubled_read.h). Until these
 * are known too, each delivery counts as one that may be out of order.
 */
#pragma once

#include <cstdint>

namespace dispatch {

class DeadLetterRead {
public:
  /* All must be read: the worker has taken shards over, or a sink's on_dead_letter has become 'block'. */
  void restart() noexcept {
    state_ = State::DEAD;
    after_ = 0;
  }

  /* The dead letters, and also the rows that were redriven meanwhile. */
  bool dead_known() const noexcept { return state_ != State::DEAD; }
  bool all_known() const noexcept { return state_ == State::KNOWN; }
  int64_t after() const noexcept { return after_; }

  /* Those up to this position are known. A round that fails takes nothing back, because what it learnt stays. */
  void read_to(int64_t position) noexcept { after_ = position; }
  void end() noexcept { state_ = State::REDRIVEN; }
  void redriven_known() noexcept {
    if (state_ == State::REDRIVEN)
      state_ = State::KNOWN;
  }

private:
  enum class State : uint8_t {
    KNOWN,   /* next: DEAD */
    DEAD,    /* dead letters are read; next: REDRIVEN */
    REDRIVEN /* next: KNOWN, DEAD */
  } state_ = State::KNOWN;
  int64_t after_ = 0;
};

}  // namespace dispatch
