/* enqueue.h: what the worker's side knows of the producer's. */
#pragma once

#include "server.h"

/* True in a worker: its own UPDATEs and DELETEs of events are not a person's, and recall nothing. */
extern bool server_is_worker;

/* This cluster and database, as events carry it in `origin`. */
int64 origin_here(void);
