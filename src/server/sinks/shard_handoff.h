/*
 * shard_handoff.h: gives shards away and takes them (dispatch/shards.h says which), under the lock of shared memory,
 * where the workers of a database see what each of them has.
 */
#pragma once

#include "server/base/clock.h"

#include "dispatch/shard_set.h"

struct WorkerSink;

/* May this worker claim events of the shard for this sink? (NULL: is the shard its own?) */
bool shard_is_mine(const struct WorkerSink *sink, int shard);

/* A new sink takes part in the shards that this worker has. */
void shards_add_sink(struct WorkerSink *sink);

/* Outside a transaction: gives away what others should have, takes what is free and ours. True when there is more to
 * claim than before: the rows of shards that were taken, which are fresh until shards_read(), must be asked for
 * blocked keys before the next claim. */
bool shards_follow(Moment now);
bool shards_any_fresh(void);
void shards_read(void);

/* When to follow again by itself. */
Moment shards_next_moment(void);

/* Has this worker events in flight in shards that it gave away? */
bool shards_draining(void);
