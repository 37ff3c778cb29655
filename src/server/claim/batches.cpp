/* batches.cpp: allocates all batches in one context, which keeps ROUND_BYTES from round to round. */
#include "server/claim/batches.h"

#include "server/event/event_row.h"

extern "C" {
#include "utils/memutils.h"
}

static MemoryContext context = NULL;

void batches_begin(void) {
  if (context == NULL)
    context = AllocSetContextCreate(TopMemoryContext, "outbox batches", ROUND_BYTES, ALLOCSET_DEFAULT_INITSIZE,
                                    ALLOCSET_DEFAULT_MAXSIZE);
  MemoryContextReset(context); /* keeps the first ROUND_BYTES */
  event_rows_begin(context);
  for (WorkerSink *sink : worker_sinks_all()) {
    sink->batch = NULL;
    sink->batch_events = NULL;
    sink->n_batch = sink->max_batch = 0;
  }
}

void batches_release_large(void) {
  if (context == NULL || MemoryContextMemAllocated(context, false) <= 2 * ROUND_BYTES)
    return;
  for (const WorkerSink *sink : worker_sinks_all())
    if (sink->n_batch > 0)
      return;
  batches_begin();
}

static void grow(WorkerSink *sink) {
  MemoryContext previous = MemoryContextSwitchTo(context);

  sink->max_batch = Max(64, sink->max_batch * 2);
  sink->batch = sink->batch ? (ob_event *)repalloc_huge(sink->batch, sizeof(ob_event) * sink->max_batch)
                            : palloc_array(ob_event, sink->max_batch);
  sink->batch_events = sink->batch_events ? (InFlightEvent **)repalloc_huge(sink->batch_events,
                                                                            sizeof(InFlightEvent *) * sink->max_batch)
                                          : palloc_array(InFlightEvent *, sink->max_batch);
  MemoryContextSwitchTo(previous);
}

ob_event *batch_next(WorkerSink *sink) {
  if (sink->n_batch == sink->max_batch)
    grow(sink);
  return &sink->batch[sink->n_batch];
}

void batch_add(WorkerSink *sink, InFlightEvent *event) {
  sink->batch[sink->n_batch].ticket = in_flight().ticket(event);
  sink->batch_events[sink->n_batch++] = event;
}

void batch_close_ranks(WorkerSink *sink) {
  int kept = 0;

  for (int i = 0; i < sink->n_batch; i++) {
    if (sink->batch_events[i] == NULL)
      continue;
    sink->batch[kept] = sink->batch[i];
    sink->batch_events[kept++] = sink->batch_events[i];
  }
  sink->n_batch = kept;
}
