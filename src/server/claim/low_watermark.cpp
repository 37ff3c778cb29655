/*
 * low_watermark.cpp: publishes the low watermarks of dispatch/sink_cursor.h in shared memory: at the end of each
 * loop, computed anew ten times a second. The values count only while every worker of the database keeps publishing.
 */
#include "server/claim/low_watermark.h"

#include "server/process/worker_slot.h"
#include "server/sinks/dispatcher.h"
#include "server/sinks/worker_sinks.h"

extern "C" {
#include "access/xact.h"
}

static const int RAISE_EVERY_MS = 100;

void low_watermark_publish(Moment now, bool unread) {
  static Moment raised_at = MOMENT_NONE;
  const int i = worker_slot()->index % OUTBOX_COUNTED_WORKERS;

  Assert(!IsTransactionState());
  if (moment_is_past(raised_at, now, RAISE_EVERY_MS)) {
    raised_at = now;
    dispatcher().raise_watermarks();
  }
  for (const WorkerSink *sink : worker_sinks_all()) {
    if (unread)
      sink->cursor->lower_watermark(0);
    if (sink->stats && sink->stats->low_watermark[i] != sink->cursor->low_watermark())
      sink->stats->low_watermark[i] = sink->cursor->low_watermark();
  }
}
