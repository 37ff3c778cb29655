/*
 * draining.h: how a draining key is read: its marked rows in order of position, up to the first row that cannot be
 * claimed yet. `dead` is the first dead letter that holds the key, POSITION_NONE when there is none.
 */
#pragma once

#include "dispatch/dispatch.h"
#include "dispatch/sink_scan.h"

namespace dispatch {

/* Only rows below this position may be claimed. */
int64_t drain_below(const Dispatch &decisions, const SinkCursor &cursor, const KeyId &key, int64_t dead) noexcept;

/* A read of the key's rows is over: the key drains on, is blocked by its dead letter, or is free. False: out of
 * memory. */
bool drain_read_ended(Dispatch &decisions, const SinkScan &scan, const KeyId &key, int64_t dead) noexcept;

}  // namespace dispatch
