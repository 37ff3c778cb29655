#include "lanes.h"

extern "C" {
#include "common/hashfn.h"
}

static int my_index = 0;
static int my_count = 1;

void lanes_own(int index, int count) {
  my_index = index;
  my_count = count;
}

bool lane_is_mine(uint64 key_hash, int64 position) {
  uint64 spread = key_hash != 0 ? key_hash : (uint64)position;

  return my_count == 1 || (int)(spread % OUTBOX_LANES) % my_count == my_index;
}

int lanes_owned(int index, int count) {
  return OUTBOX_LANES / count + (index < OUTBOX_LANES % count ? 1 : 0);
}

uint64 key_hash_of(const char *key, int length) {
  uint64 hash = hash_bytes_extended((const unsigned char *)key, length, 0);

  return hash != 0 ? hash : 1;
}
