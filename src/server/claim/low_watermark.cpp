/*
 * low_watermark.cpp: workers publish ten times a second below which position a sink has no row left. The values count
 * only while every worker of the database keeps publishing.
 */
#include "server/claim/low_watermark.h"

#include "server/inflight/in_flight.h"
#include "server/sinks/dispatcher.h"
#include "server/sinks/sink_cursor.h"

extern "C" {
#include "access/xact.h"
}

static const int PUBLISH_EVERY_MS = 100;

enum { FOUND_SIZE = 4096 };

static Moment published_at = MOMENT_NONE;
static WorkerSink *found[FOUND_SIZE]; /* a cache by OID: there may be 1,000 sinks and 40,000 events in flight */

static WorkerSink *sink_of(Oid oid) {
  WorkerSink **entry = &found[oid % FOUND_SIZE];

  if (*entry == NULL || (*entry)->id() != oid)
    *entry = worker_sink_of(oid);
  return *entry;
}

static void lower(WorkerSink *sink, int64 position) {
  if (sink)
    sink->cursor->lower_watermark(position);
}

static void lower_all(int64 position) {
  for (WorkerSink *sink : worker_sinks_all())
    lower(sink, position);
}

static void lower_by_events_in_flight(void) {
  for (const InFlightEvent *event = in_flight().next(NULL); event; event = in_flight().next(event)) {
    lower(sink_of(event), event->position);
    if (OidIsValid(event->given_to))
      lower(sink_of(event->given_to), event->position);
  }
}

void low_watermark_publish(Moment now, bool unread) {
  Assert(!IsTransactionState());
  if (!moment_is_past(published_at, now, PUBLISH_EVERY_MS)) {
    if (unread)
      for (WorkerSink *sink : worker_sinks_all())
        low_watermark_lower(sink, 0);
    return;
  }
  published_at = now;
  memset(found, 0, sizeof(found));
  for (WorkerSink *sink : worker_sinks_all())
    sink->cursor->raise_watermark(dispatcher().blocked_keys.lowest(sink->id()));
  lower_by_events_in_flight();
  for (const dispatch::Mark &mark : dispatcher().marks.returned())
    lower(sink_of(mark.sink), mark.position);
  lower_all(dispatcher().locked_rows.first());
  if (unread || dispatcher().sinks.any_fresh_shard())
    lower_all(0);
  for (WorkerSink *sink : worker_sinks_all())
    low_watermark_tell(sink);
}
