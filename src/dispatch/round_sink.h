/*
 * round_sink.h: a sink as the rounds of claiming and recording see it. The sinks of the server and of the simulator
 * are derived from it.
 */
#pragma once

#include <algorithm>
#include <memory>
#include <span>
#include <type_traits>

#include "dispatch/in_flight.h"
#include "dispatch/memory.h"
#include "dispatch/shards.h"
#include "dispatch/sink_cursor.h"

namespace dispatch {

/* Zeroed memory is a sink without rules, shards and cursor. */
struct RoundSink {
  SinkInFlight events; /* first, for sink_of() */
  SinkCursor *cursor;  /* never NULL, after RoundSinks::add() */
  SinkShards shards;
  SinkRules rules;
  bool keeps_delivered; /* as SENT */
  bool stopped;         /* by a user or by the worker: its rows wait until it is resumed */
  int credit;           /* how many more events its destination takes now; 0 = it is not open */

  int in_flight;           /* events that were claimed and have not ended … */
  int64_t bytes_in_flight; /* … and their size */
  int unrecorded;          /* events that have ended and are not yet recorded */
  int left, left_before;   /* unrecorded events as the last recording left them, and the one before it */
  int left_alone;          /* of these, the ones whose recording alone has failed … */
  int not_recorded;        /* … and those whose recording has failed in any way … */
  int sent_not_recorded;   /* … of which so many were delivered */

  /* The events that the running round has claimed, in order, and that are not yet submitted. NULL: it was dropped. */
  InFlightEvent **batch_events;
  int n_batch;

  SinkId id() const noexcept { return events.id; }

  void event_claimed(uint32_t bytes) noexcept {
    in_flight++;
    bytes_in_flight += bytes;
    cursor->event_claimed(bytes);
  }
  void event_returned(uint32_t bytes) noexcept {
    in_flight--;
    bytes_in_flight -= bytes;
  }
  void event_ended(uint32_t bytes) noexcept {
    event_returned(bytes);
    unrecorded++;
  }
  /* Takes event_ended() back. */
  void event_not_ended(uint32_t bytes) noexcept {
    in_flight++;
    bytes_in_flight += bytes;
    unrecorded--;
    left = std::min(left, unrecorded);
  }
};
static_assert(std::is_standard_layout_v<RoundSink> && std::is_trivially_copyable_v<RoundSink>);

inline RoundSink *round_sink_of(const InFlightEvent *event) noexcept {
  return reinterpret_cast<RoundSink *>(event->sink);
}

/* The sinks that a worker knows, open or not, in no order. */
class RoundSinks {
public:
  /* The worker knows this sink from now on, with a cursor that stands at the beginning. */
  void add(RoundSink *sink) noexcept;
  /* It has no event in flight, and is forgotten. */
  void remove(RoundSink *sink) noexcept;

  void begin_round() noexcept;
  void roll_back_round() noexcept;

  std::span<RoundSink *const> all() const noexcept { return sinks_; }
  /* NULL: there is none. Many calls in a row ask for the same sink. */
  RoundSink *find(SinkId id) const noexcept;
  bool any_fresh_shard() const noexcept;
  /* The failing and redriven rows of each are known. */
  bool troubled_known() const noexcept;
  /* Rows of a sink that is not stopped wait for room. */
  bool any_starved() const noexcept;

private:
  Vector<RoundSink *> sinks_;
  mutable RoundSink *last_found_ = nullptr;
  Vector<std::unique_ptr<SinkCursor>> cursors_; /* of sinks_, in the same order */
};

}  // namespace dispatch
