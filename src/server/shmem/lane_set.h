/* lane_set.h: a set of lanes, as shared memory and workers keep it. */
#pragma once

#include "server/base/server.h"

#define OUTBOX_LANES 256
#define LANE_WORDS (OUTBOX_LANES / 64)

/* The lane of an event. Events without a key (hash 0) are spread by position. */
static inline int lane_of(uint64 key_hash, int64 position) {
  return (int)((key_hash != 0 ? key_hash : (uint64)position) % OUTBOX_LANES);
}

typedef struct LaneSet {
  uint64 words[LANE_WORDS];
} LaneSet;

static inline bool lane_set_has(const LaneSet *set, int lane) {
  return (set->words[lane / 64] >> (lane % 64)) & 1;
}

static inline void lane_set_add(LaneSet *set, int lane) {
  set->words[lane / 64] |= UINT64CONST(1) << (lane % 64);
}

static inline void lane_set_remove(LaneSet *set, int lane) {
  set->words[lane / 64] &= ~(UINT64CONST(1) << (lane % 64));
}

static inline bool lane_set_empty(const LaneSet *set) {
  return (set->words[0] | set->words[1] | set->words[2] | set->words[3]) == 0;
}

static inline LaneSet lane_set_union(LaneSet a, LaneSet b) {
  for (int i = 0; i < LANE_WORDS; i++)
    a.words[i] |= b.words[i];
  return a;
}

static inline LaneSet lane_set_without(LaneSet a, LaneSet b) {
  for (int i = 0; i < LANE_WORDS; i++)
    a.words[i] &= ~b.words[i];
  return a;
}
