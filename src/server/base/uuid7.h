/*
 * uuid7.h: RFC 9562 UUIDs of version 7. Pure: the caller passes the clock and the random bits.
 *
 * 48 bits of Unix milliseconds, 12 bits of the millisecond's fraction (rand_a), 62 random bits. Within one process
 * the clock part never goes backwards and never repeats. A UUID identifies an event; the order of events is their
 * `position`.
 */
#pragma once

#include <stdint.h>
#include <string.h>

/* The smallest step that changes rand_a, in nanoseconds: 1/4096 ms, rounded up. */
enum { UUID7_STEP_NS = 1000000 / 4096 + 1 };

typedef struct Uuid7Clock {
  uint64_t last_ns; /* Unix time of the last UUID */
} Uuid7Clock;

/* Returns the Unix time for the next UUID, in nanoseconds: now, or one step after the last UUID when the clock stood
 * still or went back. */
static inline uint64_t uuid7_tick(Uuid7Clock *clock, uint64_t now_ns) {
  if (now_ns < clock->last_ns + UUID7_STEP_NS)
    now_ns = clock->last_ns + UUID7_STEP_NS;
  clock->last_ns = now_ns;
  return now_ns;
}

/* Writes the fields. `rand_a` is cut to 12 bits, `random` to 62. */
static inline void uuid7_layout(uint8_t uuid[16], uint64_t unix_ms, uint16_t rand_a, const uint8_t random[8]) {
  for (int i = 0; i < 6; i++)
    uuid[i] = (uint8_t)(unix_ms >> (40 - 8 * i));
  uuid[6] = (uint8_t)(0x70 | ((rand_a >> 8) & 0x0f));
  uuid[7] = (uint8_t)rand_a;
  memcpy(uuid + 8, random, 8);
  uuid[8] = (uint8_t)(0x80 | (uuid[8] & 0x3f));
}

static inline void uuid7_make(uint8_t uuid[16], Uuid7Clock *clock, uint64_t now_ns, const uint8_t random[8]) {
  uint64_t ns = uuid7_tick(clock, now_ns);
  uuid7_layout(uuid, ns / 1000000, (uint16_t)(ns % 1000000 * 4096 / 1000000), random);
}
