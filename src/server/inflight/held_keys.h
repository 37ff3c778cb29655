/*
 * held_keys.h: the keys of ordered sinks that wait for a failing event (the head), or for a dead letter where the
 * sink says on_failure 'hold'. Rows behind the head are marked in the table (held_by = group) when the worker comes
 * across them, so memory holds one entry per key whatever stands behind it, and a restart rebuilds the entries from
 * the rows. When the head is through, the key drains: its marked rows are claimed first, in order, and then the entry
 * goes.
 */
#pragma once

#include "server/base/server.h"

extern "C" {
#include "lib/ilist.h"
}

typedef struct HeldKeyId {
  Oid sink;
  uint32 zero; /* no padding in a hash key */
  uint64 key_hash;
} HeldKeyId;

typedef struct HeldKey {
  HeldKeyId id;  /* the hash key: first */
  int64 head;    /* position of the failing event; 0 = none, the key drains */
  int64 group;   /* what held_by says in the rows behind it */
  bool seen;     /* its head stands in the table: only while that is checked */
  int64 drained; /* while draining: the last marked row that was claimed */
  dlist_node in_draining;
} HeldKey;

void held_keys_init(void);

/* NULL when the key is free. */
HeldKey *held_key_find(Oid sink, uint64 key_hash);

/* A failing event takes its key, or an older failing one takes the lead. */
HeldKey *held_key_hold(Oid sink, uint64 key_hash, int64 position);

/* Likewise for marked rows that a restart finds without a head. */
HeldKey *held_key_drain(Oid sink, uint64 key_hash, int64 group);

/* The head is through (sent, dead, deleted): the key drains. No-op unless `position` leads the key. */
void held_key_release(Oid sink, uint64 key_hash, int64 position);
/* Likewise when only positions are known (a person deleted the rows). */
void held_keys_release_positions(const int64 *positions, int n);
/* A row was read: a key that it led, and has left since, is released. `sink` may be invalid. */
void held_key_row_seen(Oid sink, uint64 key_hash, int64 position);

/* A row was marked: the key, if it drains or has just drained, must come back to it. */
void held_key_marked(Oid sink, uint64 key_hash, int64 group, int64 position);

void held_key_forget(HeldKey *key);
void held_keys_forget_sink(Oid sink);
/* Those in lanes of which this worker knows nothing any more. */
void held_keys_forget_unknown(void);
/* Draining keys begin again with their first marked row. */
void held_keys_restart(void);

bool held_keys_any(void);
void held_keys_each(void (*visit)(const HeldKey *key));
bool held_keys_any_draining(Oid sink);
/* Positions of the next slice of the heads (palloc'd), all when they are few; marks them unseen. */
int64 *held_keys_heads(int *n);
bool held_keys_heads_are_few(void);
/* Those still unseen. */
int64 *held_keys_unseen(int *n);

/* Copies up to `max` keys of the sink that drain now, each once before one comes again. */
int held_keys_draining(Oid sink, HeldKeyId *keys, int max);
