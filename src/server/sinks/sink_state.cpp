/* sink_state.cpp: changes the state of a sink, and asserts that the change is allowed. test/states.py compares
 * may_follow() with the comments of SinkState and the diagram of src/README.md. */
#include "server/sinks/sink_state.h"

#include "server/base/fault_point.h"
#include "server/sinks/worker_sinks.h"

const char *sink_state_name(SinkState state) {
  static const char *const names[] = {"new",      "open",    "closing",  "closed", "misconfigured",
                                      "stopping", "stopped", "dropping", "dropped"};

  static_assert(lengthof(names) == SINK_DROPPED + 1);
  return names[state];
}

[[maybe_unused]] static bool may_follow(SinkState state, SinkState next) {
  switch (state) {
  case SINK_NEW:
    return next == SINK_OPEN || next == SINK_MISCONFIGURED || next == SINK_STOPPED || next == SINK_DROPPED;
  case SINK_OPEN:
    return next == SINK_CLOSING || next == SINK_STOPPING || next == SINK_DROPPING;
  case SINK_CLOSING:
    return next == SINK_CLOSED || next == SINK_STOPPING || next == SINK_DROPPING;
  case SINK_CLOSED:
    return next == SINK_OPEN || next == SINK_MISCONFIGURED || next == SINK_STOPPED || next == SINK_DROPPED;
  case SINK_MISCONFIGURED:
    return next == SINK_OPEN || next == SINK_CLOSED || next == SINK_STOPPED || next == SINK_DROPPED;
  case SINK_STOPPING:
    return next == SINK_STOPPED || next == SINK_CLOSING || next == SINK_DROPPING;
  case SINK_STOPPED:
    return next == SINK_CLOSED || next == SINK_DROPPED;
  case SINK_DROPPING:
    return next == SINK_DROPPED || next == SINK_CLOSING;
  case SINK_DROPPED:
    return next == SINK_CLOSED;
  }
  return false;
}

void sink_change_state(WorkerSink *sink, SinkState next) {
  Assert(may_follow(sink->state, next));
  Assert((sink->handle != NULL) == (next == SINK_OPEN || sink_is_closing(next)));
  ereport(DEBUG1, (errmsg_internal("outbox sink \"%s\": %s, was %s", sink->name, sink_state_name(next),
                                   sink_state_name(sink->state)),
                   errhidestmt(true), errhidecontext(true)));
  OUTBOX_STATE_CHANGES("SinkState", sink->state, next);
  sink->state = next;
  sink->stopped = next == SINK_STOPPING || next == SINK_STOPPED;
}
