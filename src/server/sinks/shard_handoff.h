/*
 * shard_handoff.h: gives shards to other workers and takes shards (dispatch/shards.h decides which), under the lock
 * of shared memory, where each worker of a database publishes its shards.
 */
#pragma once

#include "server/base/clock.h"

struct WorkerSink;

/* Adds a new sink to the shards of this worker. Takes the lock. */
void shards_add_sink(struct WorkerSink *sink);

/* Gives away the shards of other workers, and takes free shards of this one. Returns true when a sink has gained
 * shards. These are fresh until a round has read their blocked keys. Outside a transaction; takes the lock. */
bool shards_follow(Moment now);

/* When to call shards_follow() again if nothing else happens. */
Moment shards_next_moment(void);

/* Has this worker events in flight in shards that it gave away? */
bool shards_draining(void);
