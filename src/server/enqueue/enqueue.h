/* enqueue.h: what the worker's side knows of the producer's. */
#pragma once

#include "server/base/server.h"

/* True in a worker: its own UPDATEs and DELETEs of events are not a person's, and recall nothing. */
extern bool server_is_worker;

struct TriggerRow;

/* This cluster and database, as events carry it in `origin`. */
int64 origin_here(void);

/* Is its sink one that no worker delivers to? Then the worker need not hear of it. */
bool event_is_manual(const struct TriggerRow *row);
