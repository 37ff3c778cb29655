/*
 * in_flight.h: what this worker has in flight (dispatch/in_flight.h), where the server's settings, sinks and WAL are
 * concerned.
 */
#pragma once

#include "server/sinks/dispatcher.h"
#include "server/sinks/worker_sinks.h"

extern "C" {
#include "access/xlogdefs.h"
#include "storage/itemptr.h"
}

using dispatch::EventState;
using dispatch::InFlightEvent;
using dispatch::Outcome;

static inline dispatch::InFlight &in_flight(void) {
  return dispatcher().in_flight;
}

static inline WorkerSink *sink_of(const InFlightEvent *event) {
  return (WorkerSink *)((char *)event->sink - offsetof(WorkerSink, events));
}

/* Where the row was when it was read. */
static inline ItemPointerData place_of(const dispatch::RowHandle *row) {
  ItemPointerData place;

  ItemPointerSet(&place, row->page, row->line);
  return place;
}

/* How many more may be claimed, by number and by memory. */
int in_flight_free(void);
int64 in_flight_free_bytes(void);

/* A claimed event for a position that has none; an error of the running transaction when memory is short. */
InFlightEvent *in_flight_claim(const dispatch::InFlight::Claimed *claimed);

/* After a commit up to this LSN. It is asynchronous: until its WAL is safe, a crash (or a failover to a synchronous
 * standby) would send the recorded events again, so they count against outbox.max_in_flight. */
void in_flight_committed(XLogRecPtr lsn);
