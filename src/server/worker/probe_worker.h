/*
 * probe_worker.h: the worker's part of outbox.probe(). A session writes its request into shared memory
 * (operate/probe.cpp) and waits. The database's first worker lets the delivery library try the sink, and writes the
 * result.
 */
#pragma once

#include "server/shmem/shared_state.h"

#include "delivery/delivery.h"

/* Once, before the other functions. */
void probe_worker_init(ob_engines *engine);

/* Does a session of this database wait for a probe to begin? Without requests it only reads an atomic; otherwise it
 * takes the lock. */
bool probe_wanted(void);

/* Begins the requested probes. The caller has just read the sinks' options. Outside a transaction; takes the lock. */
void probe_begin(void);

/* Writes results for sessions, and ends probes whose sessions have stopped waiting. Takes the lock. */
void probe_poll(void);

/* Is a probe running? */
bool probe_running(void);
