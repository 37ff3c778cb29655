/*
 * dead_letters.h: what the worker must know of the rows in events_failed. In a sink with on_dead_letter 'block' each
 * of them holds its key until a user redrives, moves or deletes it; in every ordered sink a later event of such a
 * key that goes out is written down (out_of_order.h), so that a redrive knows whether it comes too late.
 */
#pragma once

#include "server/base/server.h"

struct WorkerSink;

/* Reads them all: when shards were taken, and when a sink begins to hold. In SPI. */
void dead_letters_read(void);

/* A sink holds from now on: dead_letters_refresh() reads again. */
void dead_letters_stale(void);
void dead_letters_refresh(void);

/* The first dead letter that holds this key of a holding sink; PG_INT64_MAX when there is none. In SPI. */
int64 dead_letter_first(const struct WorkerSink *sink, uint64 key_hash);

/* Which of these positions stand in events_failed? Holds their keys where the sink says so, and sets `state[i]`. In
 * SPI. */
typedef enum DeadLetter {
  NOT_DEAD,
  DEAD,          /* its key goes on */
  DEAD_HOLDS,    /* its key waits for it */
  DEAD_ELSEWHERE /* of another worker */
} DeadLetter;
void dead_letters_look(const int64 *positions, DeadLetter *states, int n);
