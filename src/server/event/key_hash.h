/* key_hash.h: the hash of a partition key. In SQL it is hashtextextended(partition_key, 0), by which indexes find it.
 */
#pragma once

#include "server/base/server.h"

extern "C" {
#include "common/hashfn.h"
}

/* Never 0, which stands for "no key, no order". */
static inline uint64 key_hash_of(const char *key, int length) {
  uint64 hash = hash_bytes_extended((const unsigned char *)key, length, 0);

  return hash != 0 ? hash : 1;
}
