/*
 * lanes.h: keys are spread by hash over 256 fixed lanes, lanes over the workers of a database. A lane belongs to one
 * process at a time: that, and no lock held over the network, keeps two workers off one event. The launcher starts
 * workers of a new number only when all of the old number have gone.
 */
#pragma once

#include "server.h"

#define OUTBOX_LANES 256

/* Set once, at the worker's start. */
void lanes_own(int index, int count);
bool lane_is_mine(uint64 key_hash, int64 position);
/* "0-255", "1 of 4": for views. */
int lanes_owned(int index, int count);

/* A key's hash, never 0; 0 stands for "no key, no order". */
uint64 key_hash_of(const char *key, int length);
