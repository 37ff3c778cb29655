/* sink_early_retry.cpp: notes when something is over for which events of a sink wait (a topic that was missing, an
 * outage): the next claims look through its waiting events (claim/resumed.cpp). */
#include "server/sinks/sink_early_retry.h"

/* Between an event's failure and that of its sink there may be so much: they are timed apart. */
static const int SLACK_MS = 1000;

/* How a reason begins; what it is about follows. */
static const char ANY_REASON[] = "topic \"";

static void begin(WorkerSink *sink, const char *reason, TimestampTz now) {
  strlcpy(sink->resumed.reason, reason, sizeof(sink->resumed.reason));
  sink->resumed.going = true;
  sink->resumed.tried_since = 0;
  sink->resumed.since = sink->resumed.after = now;
  sink->resumed.after_position = 0;
}

void early_retry_all(WorkerSink *sink, TimestampTz now) {
  begin(sink, ANY_REASON, now);
}

/* Events that have spent an attempt on an outage, before it was known to be one, wait for its end alone. */
static void outage_look(WorkerSink *sink, TimestampTz now) {
  if (sink->status.outage_ms >= 0) {
    if (sink->outage_since == 0)
      sink->outage_since = TimestampTzPlusMilliseconds(now, -sink->status.outage_ms - SLACK_MS);
  } else if (sink->outage_since != 0 && !sink->resumed.going) {
    begin(sink, "", now);
    sink->resumed.tried_since = sink->outage_since;
    sink->outage_since = 0;
  }
}

void early_retry_look(WorkerSink *sink, TimestampTz now) {
  char reason[sizeof(sink->resumed.reason)];

  outage_look(sink, now);
  if (!sink->resumed.going && ob_sink_next_resumed(sink->handle, reason, sizeof(reason)))
    begin(sink, reason, now);
}

void early_retry_returned(WorkerSink *sink) {
  sink->resumed.going = true;
  sink->resumed.after = sink->resumed.since;
  sink->resumed.after_position = 0;
}
