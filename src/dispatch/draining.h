/*
 * draining.h: how a draining key is read: its marked rows in order of position, up to the first row that cannot be
 * claimed yet.
 */
#pragma once

#include "dispatch/dispatch.h"
#include "dispatch/sink_scan.h"

namespace dispatch {

/* Where dead letters block: the rows that no event of the key may pass while it drains. They are its first dead
 * letter, and its first redriven row that is neither marked nor in flight, and has no time. The rescan queue has that
 * row: its next read marks the row, which then drains in its turn. */
struct DrainStops {
  int64_t dead = POSITION_NONE, redriven = POSITION_NONE;
};

/* Call it first. An event of the key has failed, and is not recorded yet because its row is locked or makes
 * transactions fail: then it blocks the key again, and nothing is read. Before that, an earlier event of
 * the key that was found late may have taken its place as the blocker. */
bool block_by_unrecorded(Dispatch &decisions, const KeyId &key) noexcept;

/* Only rows below this position may be claimed. */
int64_t drain_below(Dispatch &decisions, const SinkCursor &cursor, const KeyId &key, DrainStops stops) noexcept;

/* A read of the key's rows is over: the key drains on, is blocked by its dead letter, or is free. */
void drain_read_ended(Dispatch &decisions, const SinkScan &scan, const KeyId &key, DrainStops stops) noexcept;

}  // namespace dispatch
