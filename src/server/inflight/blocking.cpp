/* blocking.cpp: blocks keys, and turns a lack of memory into an error of the running transaction. */
#include "server/inflight/blocking.h"

#include "server/inflight/busy_list.h"

static void must_have_had_memory(bool done) {
  if (!done)
    ereport(ERROR, (errcode(ERRCODE_OUT_OF_MEMORY), errmsg("out of memory"),
                    errdetail("An outbox worker needed some for a blocked key.")));
}

void key_block(Oid sink, uint64 key_hash, int64 position) {
  int64 replaced;

  must_have_had_memory(blocked_keys().block(sink, key_hash, position, &replaced));
  if (replaced != 0)
    busy_row_add(replaced, sink, key_hash);
}

void key_drain(Oid sink, uint64 key_hash, int64 group) {
  must_have_had_memory(blocked_keys().drain(sink, key_hash, group));
}

void key_marked(Oid sink, uint64 key_hash, int64 group, int64 position) {
  must_have_had_memory(blocked_keys().marked(sink, key_hash, group, position));
}
