/* manual_leases.h: the leases of a claim, while some of its events end. */
#pragma once

#include "server/storage/sql.h"

extern "C" {
#include "storage/itemptr.h"
#include "utils/uuid.h"
}

/* One of the claim's: of a key, or of an event without one. Locked. */
typedef struct Lease {
  ItemPointerData ctid;
  Oid server;
  int64 key_hash; /* 0 = none */
  int64 overtaken_by;
  int n;
  pg_uuid_t *ids;
  int64 *positions;
  bool *ended;
} Lease;

typedef struct Leases {
  MemoryContext context;
  Lease *list;
  int n, max;
} Leases;

/* Those of the token, locked, in the order of keys; none when it has been lost. */
Leases leases_of(const pg_uuid_t *token);

/* What has ended is taken out, and a lease of which all has is dropped. Last of all: until here nobody else may have
 * their keys. */
void leases_write(const Leases *leases);
