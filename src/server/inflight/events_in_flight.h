/*
 * events_in_flight.h: connects the worker's events in flight (dispatch/in_flight.h) with settings, sinks and WAL.
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
  return &static_cast<WorkerSink &>(*dispatch::round_sink_of(event)); /* never NULL, which GCC 14 would warn of */
}

/* The row's ctid when it was read. */
static inline ItemPointerData ctid_of(const dispatch::RowHandle *row) {
  ItemPointerData ctid;

  ItemPointerSet(&ctid, row->page, row->line);
  return ctid;
}

static inline dispatch::RowHandle handle_of(const ItemPointerData *ctid) {
  return {ItemPointerGetBlockNumberNoCheck(ctid), ItemPointerGetOffsetNumberNoCheck(ctid), 0, 0};
}

/* How many more events, and how many more bytes of events, may be claimed. */
int in_flight_free(void);
int64 in_flight_free_bytes(void);

/* No further event may be claimed, as far as is known. */
bool in_flight_is_full(void);

/* The commit of a recording is asynchronous: until its WAL is safe, a crash or failover to a synchronous standby
 * would send the recorded events again. So they count against outbox.max_in_flight until then. Flushes that WAL now.
 */
void in_flight_flush_recordings(void);
