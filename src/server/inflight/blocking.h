/*
 * blocking.h: changes the blocked keys (dispatch/blocked_keys.h) from within a transaction. Out of memory is raised
 * as an error of the transaction.
 */
#pragma once

#include "server/sinks/dispatcher.h"

using dispatch::BlockedKey;
using dispatch::KeyState;

/* Makes the event the blocker of its key, unless an earlier event is. A blocker that it replaces is rescanned soon.
 */
void key_block(Oid sink, uint64 key_hash, int64 position);

/* Rows of the key that are marked as blocked (blocked_by) were found: unless the key is blocked, it drains, and these
 * rows are claimed first. */
void key_drain(Oid sink, uint64 key_hash, int64 group);
/* A row of the key was marked as blocked. */
void key_marked(Oid sink, uint64 key_hash, int64 group, int64 position);

/* This worker's blocked keys. */
static inline dispatch::BlockedKeys &blocked_keys(void) {
  return dispatcher().blocked_keys;
}
