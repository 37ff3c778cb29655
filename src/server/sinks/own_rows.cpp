/* own_rows.cpp: a worker delivers the rows of its origin whose sinks exist and whose shards it owns. */
#include "server/sinks/own_rows.h"

#include "server/sinks/shard_handoff.h"

static int64 my_origin = 0;

void own_rows_init(int64 origin) {
  my_origin = origin;
}

bool row_has_our_origin(const EventRow *row) {
  return row->origin == my_origin;
}

bool row_is_ours(const EventRow *row, WorkerSink **sink) {
  *sink = row->sink ? worker_sink_find(row->sink, row->sink_length) : NULL;
  return *sink != NULL && row_has_our_origin(row) &&
         shard_is_mine(*sink, dispatch::shard_of(row->key_hash, row->position));
}
