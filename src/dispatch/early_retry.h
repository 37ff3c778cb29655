/*
 * early_retry.h: when events of a sink are tried before they are due, because the reason for which they wait has
 * ended: a missing topic exists, an outage is over, outbox.resume() was called. Such events are due far apart (up to
 * an hour), so that their rows are not written over and over. When the reason ends, one pass is made over the rows
 * that are not yet due, in order of time and position, and claims those that waited for it.
 *
 * An UPDATE that makes the rows due, a thousand per transaction, would write each once more. Measured with rows that
 * waited for a topic, a key each, and with those statements run by a session before the worker began:
 *   100,000 rows: all delivered after 8.1 and 11.0 s instead of 5.4 and 5.6 s, 167 MB of WAL instead of 57 MB
 *   1,000,000 rows: after 232 s instead of 145 s, 1,667 MB of WAL instead of 573 MB
 */
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "dispatch/time.h"

namespace dispatch {

/* A row that a pass comes across. */
struct WaitingRow {
  WallTime available_at;
  WallTime tried_at;      /* WALL_TIME_NEVER = its last delivery did not fail */
  std::string_view error; /* of the last try; data() is nullptr when there is none */
};

class EarlyRetry {
public:
  static constexpr size_t REASON_MAX = 288;

  void begin_round() noexcept { at_round_begin_ = pass_; }
  void roll_back_round() noexcept;

  /* A pass is under way. */
  bool going() const noexcept { return pass_.going; }
  /* Its next read begins after the row with this time and position. */
  WallTime after() const noexcept { return pass_.after; }
  int64_t after_position() const noexcept { return pass_.after_position; }

  /* A reason has ended: a pass begins for the events whose error begins with it. Of a longer one, the first
   * REASON_MAX - 1 bytes count. */
  void begin(const char *reason, WallTime now) noexcept;
  /* Events try again whatever topic they wait for. */
  void begin_all(WallTime now) noexcept;
  /* The sink's outage lasts for so long; negative: there is none, and a pass begins when one has just ended. */
  void outage(int64_t outage_ms, WallTime now) noexcept;

  /* The peer has asked for a pause, which lasts for so long; 0: it has not, or the pause is over. `all_recorded`:
   * there are rows for all events of the sink that have failed. */
  void pause(int64_t paused_ms, bool all_recorded, WallTime now) noexcept;
  /* A user has ended the pause: a pass begins for the events that were tried since it began, because they wait for
   * its end. It begins at the first call of pause() with which they all have rows and no other pass is under way. */
  void end_pause() noexcept { pause_ended_ = pause_since_ != 0; }
  bool ends_pause() const noexcept { return pause_ended_; }

  /* True when the reason of the pass is the one for which the event waits. */
  bool frees(const WaitingRow &row, WallTime now) const noexcept;

  /* A read has passed this row. */
  void passed(WallTime available_at, int64_t position) noexcept {
    pass_.after = available_at;
    pass_.after_position = position;
  }
  /* A read is over, and the pass with it unless there are `more` rows. */
  void end_read(bool more) noexcept { pass_.going = more; }
  /* An event of the pass came back unsent: the pass begins again. */
  void returned() noexcept;

private:
  struct Pass {
    bool going;
    WallTime after;
    int64_t after_position;
  };

  Pass pass_ = {}, at_round_begin_ = {};
  WallTime since_ = 0;        /* when the reason ended: an event that was tried later waits for something else */
  WallTime tried_since_ = 0;  /* the pass is for events that were tried since then; 0 = for those of reason_ */
  WallTime outage_since_ = 0; /* of an outage that is not known to be over; 0 = there is none */
  WallTime pause_since_ = 0;  /* of a pause that is not known to be over; 0 = there is none */
  bool pause_ended_ = false;  /* by a user, and its pass has not begun */
  char reason_[REASON_MAX] = {};
};

}  // namespace dispatch
