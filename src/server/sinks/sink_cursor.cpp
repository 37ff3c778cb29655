/* sink_cursor.cpp: a low watermark that is published too high hides rows from the views, so each change is published.
 */
#include "server/sinks/sink_cursor.h"

#include "server/process/worker_slot.h"

extern "C" {
#include "utils/timestamp.h"
}

void sink_cursor_restart(WorkerSink *sink) {
  sink->cursor->restart(GetCurrentTimestamp());
  low_watermark_tell(sink);
}

void low_watermark_lower(WorkerSink *sink, int64 position) {
  sink->cursor->lower_watermark(position);
  low_watermark_tell(sink);
}

void low_watermark_tell(WorkerSink *sink) {
  if (sink->cursor->watermark_to_publish() && sink->stats)
    sink->stats->low_watermark[worker_slot()->index % OUTBOX_COUNTED_WORKERS] = sink->cursor->low_watermark();
}
