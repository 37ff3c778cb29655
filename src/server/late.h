/*
 * late.h: transactions that drew positions before others that are already claimed, and commit after them. They are
 * looked up by transaction, never searched for: old.xip minus new.xip are those that ended since the last round.
 * This needs two things of the producer: a transaction id before the first position, a sequence with CACHE 1.
 */
#pragma once

#include "server.h"

extern "C" {
#include "utils/snapshot.h"
}

/* Compares the snapshot with that of the last round and notes in every sink the transactions that ended meanwhile
 * and left rows at or below its cursor. In SPI. */
void late_find(Snapshot snapshot);
