/*
 * late.h: transactions that drew positions before others that are already claimed, and commit after them. They are
 * looked up by transaction, never searched for: what was in progress in the last round's snapshot and is not in this
 * one's has ended meanwhile.
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
