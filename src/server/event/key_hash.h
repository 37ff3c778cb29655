/* key_hash.h: the hash of a partition key, equal to hashtextextended(partition_key, 0) in SQL, which indexes contain.
 */
#pragma once

#include "server/base/server.h"

extern "C" {
#include "common/hashfn.h"
}

/* Returns 1 instead of 0, because 0 means "no key, no order". */
static inline uint64 key_hash_of(const char *key, int length) {
  uint64 hash = hash_bytes_extended((const unsigned char *)key, length, 0);

  return hash != 0 ? hash : 1;
}
