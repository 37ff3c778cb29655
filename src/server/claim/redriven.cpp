/*
 * redriven.cpp: a redriven event goes before what is later in its key and not yet sent. Later ones that are in the
 * air when it comes back have to end first: where one of them was delivered, the recording has marked or buried the
 * redriven one (overtaken.h); where none was, it leads.
 */

#include "server/claim/redriven.h"

#include "server/claim/claim_round.h"
#include "server/inflight/blocking.h"
#include "server/sinks/dispatcher.h"

typedef struct KeyId {
  Oid sink;
  uint32 zero; /* no padding in a hash key */
  uint64 key_hash;
} KeyId;

/* The last event of a key that is claimed or in the air, or not yet written down. */
typedef struct InAir {
  KeyId id; /* the hash key: first */
  int64 last;
} InAir;

static void add_event(const InFlightEvent *event) {
  KeyId id = {sink_of(event)->oid, 0, event->key_hash};
  bool found;

  if (event->key_hash == 0)
    return;
  InAir *entry = (InAir *)hash_search(claim_round.in_air, &id, HASH_ENTER, &found);
  entry->last = found ? Max(entry->last, event->position) : event->position;
}

void redriven_saw(const InFlightEvent *event) {
  if (claim_round.in_air)
    add_event(event);
}

static int64 last_in_air(Oid sink, uint64 key_hash) {
  KeyId id = {sink, 0, key_hash};

  if (claim_round.in_air == NULL) { /* the first one of this round */
    HASHCTL control;
    control.keysize = sizeof(KeyId);
    control.entrysize = sizeof(InAir);
    control.hcxt = claim_round.context;
    claim_round.in_air = hash_create("outbox keys in the air", 1024, &control, HASH_ELEM | HASH_BLOBS | HASH_CONTEXT);
    for (const InFlightEvent *event = in_flight().next(NULL); event; event = in_flight().next(event))
      add_event(event);
  }
  InAir *entry = (InAir *)hash_search(claim_round.in_air, &id, HASH_FIND, NULL);
  return entry ? entry->last : 0;
}

bool redriven_must_wait(const WorkerSink *sink, const EventRow *row) {
  if (row->key_hash == 0 || last_in_air(sink->oid, row->key_hash) <= row->position)
    return false;
  key_block(sink->oid, row->key_hash, row->position);
  /* An earlier one may take the lead. */
  require_memory(dispatcher().locked_rows.add(row->position, sink->oid, row->key_hash));
  claim_round.overruled = true;
  return true;
}
