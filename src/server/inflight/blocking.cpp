/* blocking.cpp: blocks keys, and turns a lack of memory into an error of the running transaction. */
#include "server/inflight/blocking.h"

void key_block(Oid sink, uint64 key_hash, int64 position) {
  require_memory(dispatcher().block_key(sink, key_hash, position));
}

void key_drain(Oid sink, uint64 key_hash, int64 group) {
  require_memory(blocked_keys().drain(sink, key_hash, group));
}

void key_marked(Oid sink, uint64 key_hash, int64 group, int64 position) {
  require_memory(blocked_keys().marked(sink, key_hash, group, position));
}
