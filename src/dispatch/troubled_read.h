/*
 * troubled_read.h: how far the failing and redriven rows of a sink were read, in order of the hash of their key and
 * of position. Each blocks its key, and nothing else in memory shows it after a start, in a shard that was taken
 * over, or when the main scan has skipped it. To read a million of them takes six seconds, so each round reads a
 * slice of them, and events are delivered meanwhile. Until all are known, those of a key that was not yet read are
 * looked up when an event of the key is claimed, or before the key drains (ClaimRound::learn_key()).
 * They are read after the dead letters (dead_letter_read.h): one that is redriven meanwhile is found here.
 */
#pragma once

#include <cstdint>

namespace dispatch {

class TroubledRead {
public:
  /* All must be read, also when the round fails. */
  void restart() noexcept { state_ = at_round_begin_ = {READING, INT64_MIN, 0}; }

  bool all_known() const noexcept { return state_.step == KNOWN; }
  /* Of this key. A slice may end within a key. */
  bool knows(uint64_t key_hash) const noexcept {
    return state_.step == KNOWN || static_cast<int64_t>(key_hash) < state_.after_hash;
  }
  /* The next slice begins after this place. Hashes are compared as the table compares them, with their signs. */
  int64_t after_hash() const noexcept { return state_.after_hash; }
  int64_t after_position() const noexcept { return state_.after_position; }

  void read_to(uint64_t key_hash, int64_t position) noexcept {
    state_.after_hash = static_cast<int64_t>(key_hash);
    state_.after_position = position;
  }
  void end() noexcept { state_.step = KNOWN; }

  /* The slice of a round that fails is read again: a user's trigger may have changed rows in its transaction. */
  void begin_round() noexcept { at_round_begin_ = state_; }
  void roll_back_round() noexcept { state_ = at_round_begin_; }

private:
  enum Step : uint8_t { KNOWN, READING };
  struct State {
    Step step;
    int64_t after_hash, after_position;
  };

  State state_ = {KNOWN, INT64_MIN, 0}, at_round_begin_ = state_;
};

}  // namespace dispatch
