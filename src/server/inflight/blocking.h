/*
 * blocking.h: what blocks keys (dispatch/blocked_keys.h), where more than the key is concerned: memory may be short,
 * which is an error of the running transaction, and a blocker may lose its place to an earlier event.
 */
#pragma once

#include "server/sinks/dispatcher.h"

using dispatch::BlockedKey;
using dispatch::KeyState;

/* The event blocks its key, unless an earlier one does. A blocker that it replaces is looked at again soon. */
void key_block(Oid sink, uint64 key_hash, int64 position);

/* Marked rows of the key were found, or one was marked. */
void key_drain(Oid sink, uint64 key_hash, int64 group);
void key_marked(Oid sink, uint64 key_hash, int64 group, int64 position);

/* This worker's blocked keys. */
static inline dispatch::BlockedKeys &blocked_keys(void) {
  return dispatcher().blocked_keys;
}
