/* sink_cursor.cpp: how far a sink has come: remembered at the start of a round, gone back to, begun anew. */
#include "server/sinks/sink_cursor.h"

#include "server/process/worker_slot.h"
#include "server/sinks/sink_early_retry.h"

typedef struct SinkPlace {
  int64 cursor;
  dispatch::DueCursor due;
  bool resumed_going;
  TimestampTz resumed_after;
  int64 resumed_after_position;
  int n_late;
  LateTransaction late[FLEXIBLE_ARRAY_MEMBER];
} SinkPlace;

void sink_cursor_begin_round(WorkerSink *sink, MemoryContext context) {
  SinkPlace *place =
      (SinkPlace *)MemoryContextAlloc(context, offsetof(SinkPlace, late) + sizeof(LateTransaction) * sink->n_late);

  place->cursor = sink->cursor;
  place->due = sink->due;
  place->resumed_going = sink->resumed.going;
  place->resumed_after = sink->resumed.after;
  place->resumed_after_position = sink->resumed.after_position;
  place->n_late = sink->n_late;
  if (sink->n_late > 0)
    memcpy(place->late, sink->late, sizeof(LateTransaction) * sink->n_late);
  sink->before = place;
}

bool sink_cursor_advanced(const WorkerSink *sink) {
  return sink->cursor > sink->before->cursor;
}

void sink_cursor_give_back(WorkerSink *sink) {
  const SinkPlace *place = sink->before;

  sink->cursor = Min(sink->cursor, place->cursor);
  low_watermark_lower(sink, sink->cursor + 1);
  sink->due = {.after = place->due.after,
               .after_position = place->due.after_position,
               .next = Min(sink->due.next, place->due.next)};
  sink->resumed.going |= place->resumed_going;
  sink->resumed.after = place->resumed_after;
  sink->resumed.after_position = place->resumed_after_position;
  sink->n_late = place->n_late;
  if (place->n_late > 0)
    memcpy(sink->late, place->late, sizeof(LateTransaction) * place->n_late);
  sink->starved = true;
}

void sink_cursor_restart(WorkerSink *sink) {
  sink->cursor = sink->rewound_to = 0;
  sink->first_foreign = 0;
  low_watermark_lower(sink, 0);
  sink->n_late = 0;
  sink->due = {.after = DT_NOBEGIN, .after_position = 0, .next = DT_NOBEGIN};
  early_retry_all(sink, GetCurrentTimestamp());
  sink->starved = true;
}

void sink_cursor_rewind(WorkerSink *sink, int64 position) {
  sink->cursor = Min(sink->cursor, position - 1);
  sink->rewound_to = Min(sink->rewound_to, position - 1);
  low_watermark_lower(sink, position);
  sink->starved = true;
}

void low_watermark_tell(const WorkerSink *sink) {
  if (sink->stats)
    sink->stats->low_watermark[worker_slot()->index % OUTBOX_COUNTED_WORKERS] = sink->low_watermark;
}

void low_watermark_lower(WorkerSink *sink, int64 position) {
  if (position >= sink->low_watermark)
    return;
  sink->low_watermark = position;
  low_watermark_tell(sink);
}
