/*
 * sink_state.h: the states of a sink in a worker. A sink is opened anew only when none of its events is in flight,
 * because the order of its events depends on that. So a sink that is altered, stopped or dropped first waits until
 * the delivery library has returned its events.
 */
#pragma once

#include "server/base/server.h"

typedef struct WorkerSink WorkerSink;

typedef enum SinkState {
  SINK_NEW,           /* never opened; next: OPEN, MISCONFIGURED, STOPPED, DROPPED */
  SINK_OPEN,          /* takes events; next: CLOSING, STOPPING, DROPPING */
  SINK_CLOSING,       /* altered: its requests in flight end; next: CLOSED, STOPPING, DROPPING */
  SINK_CLOSED,        /* to be opened anew; next: OPEN, MISCONFIGURED, STOPPED, DROPPED */
  SINK_MISCONFIGURED, /* could not be opened, tried again later; next: OPEN, CLOSED (altered), STOPPED, DROPPED */
  SINK_STOPPING,      /* stopped while open; next: STOPPED, CLOSING (resumed), DROPPING */
  SINK_STOPPED,       /* by outbox.stopped_sinks (worker_stops.h); next: CLOSED (resumed), DROPPED */
  SINK_DROPPING,      /* dropped while open; next: DROPPED, CLOSING (made again under its name) */
  SINK_DROPPED        /* forgotten once nothing of it is in flight; next: CLOSED (made again under its name) */
} SinkState;

/* Was the sink's server dropped? */
static inline bool sink_is_dropped(SinkState state) {
  return state == SINK_DROPPING || state == SINK_DROPPED;
}

/* Does the delivery library still have events of the sink? */
static inline bool sink_is_closing(SinkState state) {
  return state == SINK_CLOSING || state == SINK_STOPPING || state == SINK_DROPPING;
}

/* Is the sink to be opened as soon as possible? */
static inline bool sink_is_to_open(SinkState state) {
  return state == SINK_NEW || state == SINK_CLOSED || state == SINK_MISCONFIGURED;
}

/* The name of the state, for the log. */
const char *sink_state_name(SinkState state);

/* The only writer of WorkerSink.state and .stopped. The caller sets or resets the sink's handle before. */
void sink_change_state(WorkerSink *sink, SinkState next);
