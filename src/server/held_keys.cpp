#include "held_keys.h"

#include "claim_round.h"

extern "C" {
#include "utils/hsearch.h"
#include "utils/memutils.h"
}

static HTAB *held = NULL;
static int draining = 0; /* entries without a head: spares a walk when there are none */

void held_keys_init(void) {
  HASHCTL control;

  control.keysize = sizeof(HeldKeyId);
  control.entrysize = sizeof(HeldKey);
  control.hcxt = TopMemoryContext;
  held = hash_create("outbox held keys", 256, &control, HASH_ELEM | HASH_BLOBS | HASH_CONTEXT);
}

static HeldKeyId id_of(Oid sink, uint64 key_hash) {
  HeldKeyId id = {sink, 0, key_hash};

  return id;
}

HeldKey *held_key_find(Oid sink, uint64 key_hash) {
  if (key_hash == 0 || hash_get_num_entries(held) == 0)
    return NULL;
  HeldKeyId id = id_of(sink, key_hash);
  return (HeldKey *)hash_search(held, &id, HASH_FIND, NULL);
}

/* The key's entry, made when it is new; NULL for an event without a key. */
static HeldKey *enter(Oid sink, uint64 key_hash, bool *found) {
  HeldKeyId id = id_of(sink, key_hash);

  return key_hash == 0 ? NULL : (HeldKey *)hash_search(held, &id, HASH_ENTER, found);
}

static void start_draining(HeldKey *key) {
  key->head = 0;
  key->drained = 0;
  draining++;
}

HeldKey *held_key_hold(Oid sink, uint64 key_hash, int64 position) {
  bool found;
  HeldKey *key = enter(sink, key_hash, &found);

  if (key == NULL)
    return NULL;
  if (!found) {
    key->group = position;
    key->head = position;
    key->drained = 0;
  } else if (key->head == 0) {
    key->head = position;
    draining--;
  } else if (position < key->head) {
    busy_row_add(key->head, sink, key_hash); /* it is not marked, and those behind it are */
    key->head = position;
  }
  return key;
}

HeldKey *held_key_drain(Oid sink, uint64 key_hash, int64 group) {
  bool found;
  HeldKey *key = enter(sink, key_hash, &found);

  if (key == NULL)
    return NULL;
  if (!found)
    start_draining(key);
  key->group = group;
  return key;
}

void held_key_release(Oid sink, uint64 key_hash, int64 position) {
  HeldKey *key = held_key_find(sink, key_hash);

  if (key == NULL || key->head != position)
    return;
  start_draining(key);
}

static int by_value(const void *a, const void *b) {
  int64 left = *(const int64 *)a, right = *(const int64 *)b;

  return left < right ? -1 : left > right;
}

void held_keys_release_positions(const int64 *positions, int n) {
  HASH_SEQ_STATUS walk;
  HeldKey *key;

  if (n == 0)
    return;
  hash_seq_init(&walk, held);
  while ((key = (HeldKey *)hash_seq_search(&walk)) != NULL)
    if (key->head != 0 && bsearch(&key->head, positions, n, sizeof(int64), by_value))
      start_draining(key);
}

void held_key_marked(Oid sink, uint64 key_hash, int64 group, int64 position) {
  HeldKey *key = held_key_find(sink, key_hash);

  if (key == NULL)
    key = held_key_drain(sink, key_hash, group);
  if (key && key->head == 0)
    key->drained = Min(key->drained, position - 1);
}

void held_key_forget(HeldKey *key) {
  if (key->head == 0)
    draining--;
  hash_search(held, &key->id, HASH_REMOVE, NULL);
}

void held_keys_forget_sink(Oid sink) {
  HASH_SEQ_STATUS walk;
  HeldKey *key;

  hash_seq_init(&walk, held);
  while ((key = (HeldKey *)hash_seq_search(&walk)) != NULL)
    if (key->id.sink == sink)
      held_key_forget(key);
}

void held_keys_restart(void) {
  HASH_SEQ_STATUS walk;
  HeldKey *key;

  hash_seq_init(&walk, held);
  while ((key = (HeldKey *)hash_seq_search(&walk)) != NULL)
    key->drained = 0;
}

static int64 *collect_heads(bool unseen_only, int *n) {
  int64 *heads = (int64 *)palloc(sizeof(int64) * (hash_get_num_entries(held) + 1));
  HASH_SEQ_STATUS walk;
  HeldKey *key;

  *n = 0;
  hash_seq_init(&walk, held);
  while ((key = (HeldKey *)hash_seq_search(&walk)) != NULL) {
    if (!unseen_only)
      key->seen = false;
    if (key->head != 0 && !key->seen)
      heads[(*n)++] = key->head;
  }
  return heads;
}

int64 *held_keys_heads(int *n) {
  return collect_heads(false, n);
}

int64 *held_keys_unseen(int *n) {
  return collect_heads(true, n);
}

bool held_keys_any_draining(void) {
  return draining > 0;
}

int held_keys_draining(Oid sink, HeldKeyId *keys, int max) {
  HASH_SEQ_STATUS walk;
  HeldKey *key;
  int n = 0;

  if (draining == 0)
    return 0;
  hash_seq_init(&walk, held);
  while ((key = (HeldKey *)hash_seq_search(&walk)) != NULL) {
    if (key->head != 0 || key->id.sink != sink)
      continue;
    keys[n++] = key->id;
    if (n == max) {
      hash_seq_term(&walk);
      break;
    }
  }
  return n;
}
