/*
 * dead_letters.h: the worker's knowledge of the rows in events_failed. In a sink with on_dead_letter 'block' each of
 * them blocks its key until a user redrives, moves or deletes it. In every ordered sink the delivery of a later event
 * of such a key is recorded (out_of_order.h), so that a redrive knows whether it comes too late.
 */
#pragma once

#include "server/base/server.h"

#include "dispatch/draining.h"

extern "C" {
#include "utils/snapshot.h"
}

struct WorkerSink;

/* Reads all dead letters: after the worker has taken shards, and when on_dead_letter of a sink becomes 'block'. In
 * SPI. */
void dead_letters_read(void);

/* dead_letters_stale(): on_dead_letter of a sink became 'block', so the next dead_letters_refresh() reads again. The
 * latter runs in SPI. */
void dead_letters_stale(void);
void dead_letters_refresh(void);

/* The positions that no event of this key may drain past, for sinks with on_dead_letter 'block'. With the round's
 * snapshot: a dead letter that is redriven meanwhile is found in one of the two tables, so later events of its key
 * are not sent before it. In SPI. */
dispatch::DrainStops dead_letter_stops(const struct WorkerSink *sink, uint64 key_hash, Snapshot snapshot);

/* Sets `states[i]` for each of the `n` positions, and blocks the keys of dead letters of sinks with on_dead_letter
 * 'block'. With the snapshot that did not show the positions as pending. In SPI. */
typedef enum DeadLetter {
  NOT_DEAD,
  DEAD,          /* its key is not blocked */
  DEAD_BLOCKS,   /* it blocks its key */
  DEAD_ELSEWHERE /* a dead letter in a shard of another worker */
} DeadLetter;
void dead_letters_find(const int64 *positions, DeadLetter *states, int n, Snapshot snapshot);
