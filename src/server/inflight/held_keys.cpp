#include "server/inflight/held_keys.h"

#include "server/inflight/busy_list.h"
#include "server/sinks/lanes.h"
#include "server/sinks/worker_sinks.h"

extern "C" {
#include "utils/hsearch.h"
#include "utils/memutils.h"
}

/* So many heads are looked up at once: a safety net must not cost more the more keys fail. */
static const int HEADS_MAX = 2000;

/* The keys of one sink that drain: with 100,000 held ones nobody walks all of them for a few. */
typedef struct DrainingKeys {
  Oid sink; /* the hash key: first */
  dlist_head keys;
} DrainingKeys;

/* Which key a position leads. */
typedef struct HeadEntry {
  int64 position; /* the hash key: first */
  HeldKey *key;
} HeadEntry;

static HTAB *held = NULL;
static HTAB *heads = NULL;
static HTAB *draining = NULL;
static uint32 slice = 0;

static HTAB *make_table(const char *name, Size key_size, Size entry_size, long entries) {
  HASHCTL control;

  control.keysize = key_size;
  control.entrysize = entry_size;
  control.hcxt = TopMemoryContext;
  return hash_create(name, entries, &control, HASH_ELEM | HASH_BLOBS | HASH_CONTEXT);
}

void held_keys_init(void) {
  held = make_table("outbox held keys", sizeof(HeldKeyId), sizeof(HeldKey), 256);
  heads = make_table("outbox heads", sizeof(int64), sizeof(HeadEntry), 256);
  draining = make_table("outbox draining keys", sizeof(Oid), sizeof(DrainingKeys), 16);
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

static dlist_head *draining_keys(Oid sink) {
  bool found;
  DrainingKeys *entry = (DrainingKeys *)hash_search(draining, &sink, HASH_ENTER, &found);

  if (!found)
    dlist_init(&entry->keys);
  return &entry->keys;
}

static HeldKey *key_of(dlist_node *node) {
  return (HeldKey *)((char *)node - offsetof(HeldKey, in_draining));
}

static void start_draining(HeldKey *key) {
  if (key->head != 0)
    hash_search(heads, &key->head, HASH_REMOVE, NULL);
  key->head = 0;
  key->drained = 0;
  dlist_push_tail(draining_keys(key->id.sink), &key->in_draining);
}

static void set_head(HeldKey *key, int64 position) {
  bool found;

  if (key->head == position)
    return;
  if (key->head != 0)
    hash_search(heads, &key->head, HASH_REMOVE, NULL);
  else
    dlist_delete(&key->in_draining);
  key->head = position;
  HeadEntry *entry = (HeadEntry *)hash_search(heads, &position, HASH_ENTER, &found);
  HeldKey *former = found ? entry->key : NULL;
  entry->key = key;
  if (former) { /* its row has another key now */
    former->head = 0;
    start_draining(former);
  }
}

/* The key's entry, draining when it is new; NULL for an event without a key. */
static HeldKey *enter(Oid sink, uint64 key_hash, int64 group) {
  bool found;
  HeldKeyId id = id_of(sink, key_hash);

  if (key_hash == 0)
    return NULL;
  HeldKey *key = (HeldKey *)hash_search(held, &id, HASH_ENTER, &found);
  if (!found) {
    key->group = group;
    key->seen = true;
    key->head = 0;
    start_draining(key);
  }
  return key;
}

HeldKey *held_key_hold(Oid sink, uint64 key_hash, int64 position) {
  HeldKey *key = enter(sink, key_hash, position);

  if (key && key->head != 0 && position < key->head)
    busy_row_add(key->head, sink, key_hash); /* it is not marked, and those behind it are */
  if (key && (key->head == 0 || position < key->head))
    set_head(key, position);
  return key;
}

HeldKey *held_key_drain(Oid sink, uint64 key_hash, int64 group) {
  HeldKey *key = enter(sink, key_hash, group);

  if (key)
    key->group = group;
  return key;
}

void held_key_release(Oid sink, uint64 key_hash, int64 position) {
  HeldKey *key = held_key_find(sink, key_hash);

  if (key == NULL || key->head != position)
    return;
  start_draining(key);
}

void held_keys_release_positions(const int64 *positions, int n) {
  for (int i = 0; i < n; i++) {
    HeadEntry *entry = (HeadEntry *)hash_search(heads, &positions[i], HASH_FIND, NULL);
    if (entry)
      start_draining(entry->key);
  }
}

void held_key_row_seen(Oid sink, uint64 key_hash, int64 position) {
  const HeldKey *key = OidIsValid(sink) ? held_key_find(sink, key_hash) : NULL;

  if (key == NULL || key->head != position)
    held_keys_release_positions(&position, 1);
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
    dlist_delete(&key->in_draining);
  else
    hash_search(heads, &key->head, HASH_REMOVE, NULL);
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

void held_keys_forget_unknown(void) {
  int n;
  WorkerSink **sinks = worker_sinks_all(&n);
  HASH_SEQ_STATUS walk;
  HeldKey *key;

  hash_seq_init(&walk, held);
  while ((key = (HeldKey *)hash_seq_search(&walk)) != NULL)
    for (int i = 0; i < n; i++)
      if (sinks[i]->oid == key->id.sink && !lane_is_known(sinks[i], lane_of(key->id.key_hash, 0))) {
        held_key_forget(key);
        break;
      }
}

void held_keys_restart(void) {
  HASH_SEQ_STATUS walk;
  DrainingKeys *entry;

  hash_seq_init(&walk, draining);
  while ((entry = (DrainingKeys *)hash_seq_search(&walk)) != NULL)
    for (dlist_node *node = entry->keys.head.next; node != &entry->keys.head; node = node->next)
      key_of(node)->drained = 0;
}

static uint32 slices(void) {
  return 1 + (uint32)(hash_get_num_entries(held) / HEADS_MAX);
}

bool held_keys_heads_are_few(void) {
  return slices() == 1;
}

int64 *held_keys_heads(int *n) {
  int64 *positions = (int64 *)palloc(sizeof(int64) * (hash_get_num_entries(heads) + 1));
  uint32 n_slices = slices();
  HASH_SEQ_STATUS walk;
  HeldKey *key;

  *n = 0;
  slice = (slice + 1) % n_slices;
  hash_seq_init(&walk, held);
  while ((key = (HeldKey *)hash_seq_search(&walk)) != NULL) {
    key->seen = key->head == 0 || (uint32)(key->id.key_hash >> 32) % n_slices != slice;
    if (!key->seen)
      positions[(*n)++] = key->head;
  }
  return positions;
}

int64 *held_keys_unseen(int *n) {
  int64 *positions = (int64 *)palloc(sizeof(int64) * (hash_get_num_entries(heads) + 1));
  HASH_SEQ_STATUS walk;
  HeldKey *key;

  *n = 0;
  hash_seq_init(&walk, held);
  while ((key = (HeldKey *)hash_seq_search(&walk)) != NULL)
    if (key->head != 0 && !key->seen)
      positions[(*n)++] = key->head;
  return positions;
}

void held_keys_each(void (*visit)(const HeldKey *key)) {
  HASH_SEQ_STATUS scan;

  hash_seq_init(&scan, held);
  while (const HeldKey *key = (const HeldKey *)hash_seq_search(&scan))
    visit(key);
}

bool held_keys_any(void) {
  return hash_get_num_entries(held) > 0;
}

bool held_keys_any_draining(Oid sink) {
  return !dlist_is_empty(draining_keys(sink));
}

int held_keys_draining(Oid sink, HeldKeyId *keys, int max) {
  dlist_head *list = draining_keys(sink);
  int n = 0;

  while (n < max && !dlist_is_empty(list)) {
    HeldKey *key = key_of(dlist_head_node(list));
    if (n > 0 && memcmp(&keys[0], &key->id, sizeof(HeldKeyId)) == 0)
      break; /* once round */
    keys[n++] = key->id;
    dlist_move_tail(list, &key->in_draining);
  }
  return n;
}
