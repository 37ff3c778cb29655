/*
 * lanes.h: keys are spread by hash over 256 fixed lanes, lanes over the workers of a database: lane % workers. A lane
 * belongs to one process at a time: that, and no lock held over the network, keeps two workers off one event.
 *
 * When the number of workers changes, a lane goes to its new owner at once, but for the sinks of which its former
 * owner still has events of the lane in the air: those wait until that has landed and is recorded. So a sink that
 * hangs stops no other. What a worker must know of a lane it reads from the rows, as after a restart.
 */
#pragma once

#include "server/base/clock.h"
#include "server/shmem/lane_set.h"

struct WorkerSink;

/* What a worker keeps for each of its sinks. */
typedef struct SinkLanes {
  LaneSet claimable;
  LaneSet fresh;   /* of those: just taken, their rows are still to be asked which keys are held */
  LaneSet landing; /* given away, with events of ours in the air */
} SinkLanes;

/* Once, at the worker's start. */
void lanes_init(int index);

/* May this worker claim events of the lane for this sink? (NULL: is the lane its own?) */
bool lane_is_mine(const struct WorkerSink *sink, int lane);

/* A new sink takes part in the lanes that this worker has. */
void lanes_add_sink(struct WorkerSink *sink);

/* Outside a transaction: gives away what others should have, takes what is free and ours. True when there is more to
 * claim than before: the rows of lanes that were taken, which are fresh until lanes_read(), must be asked for blocked
 * keys before the next claim. */
bool lanes_follow(Moment now);
bool lanes_any_fresh(void);
void lanes_read(void);

/* So many workers share the lanes; 0 = the launcher has not yet said. */
int lanes_workers(void);

/* When to follow again by itself. */
Moment lanes_next_moment(void);

/* Is something of ours in the air in lanes that others have? */
bool lanes_landing(void);

/* This worker is one too many, and has no lane any more. */
bool lanes_superfluous(void);
