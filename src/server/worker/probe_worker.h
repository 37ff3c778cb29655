/*
 * probe_worker.h: outbox.probe() from the worker's side. A session writes its question into shared memory
 * (operate/probe.cpp) and waits; the database's first worker has the delivery library try the sink
 * (probe_worker.cpp), and writes the answer.
 */
#pragma once

#include "server/shmem/shared_state.h"

#include "delivery/delivery.h"

void probe_worker_init(ob_engine *engine);

/* Is a session of this database waiting for a probe to begin? Cheap when nobody is. */
bool probe_wanted(void);

/* Begins those that are wanted, outside a transaction, with the sinks as they were just read. */
void probe_begin(void);

/* Tells sessions what was found, and ends what nobody waits for any more. */
void probe_poll(void);

/* Is any under way? */
bool probe_running(void);
