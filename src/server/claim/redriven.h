/* redriven.h: a redriven event goes before what is later in its key and not yet sent. */
#pragma once

#include "server/event/event_row.h"
#include "server/inflight/in_flight.h"
#include "server/sinks/worker_sinks.h"

/* Later events of its key are on their way: the row leads its key from now on, and is looked at again. */
bool redriven_must_wait(const WorkerSink *sink, const EventRow *row);

/* A row was taken into a batch. */
void redriven_saw(const InFlightEvent *event);
