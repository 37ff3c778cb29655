/* busy_rows.cpp: rows that could not be taken or marked yet: somebody had locked them, or they lost the lead. */
#include "server/claim/claim.h"
#include "server/claim/claim_round.h"

extern "C" {
#include "utils/memutils.h"
}

typedef struct BusyRow {
  int64 position;
  Moment look_at;
  Oid sink;
  uint64 key_hash;
} BusyRow;
/* A person's UPDATE of a whole backlog: memory, and the time that the looks take, are bounded. */
static const int BUSY_MAX = 20000;
static const double MORE_PAUSE_MS = 0.1; /* per row that is busy */

static BusyRow *busy = NULL;
static int n_busy = 0, max_busy = 0;

void busy_row_add(int64 position, Oid sink, uint64 key_hash) {
  if (n_busy == max_busy) {
    max_busy = Max(64, max_busy * 2);
    busy = busy ? (BusyRow *)repalloc(busy, sizeof(BusyRow) * max_busy)
                : (BusyRow *)MemoryContextAlloc(TopMemoryContext, sizeof(BusyRow) * max_busy);
  }
  busy[n_busy].position = position;
  busy[n_busy].sink = sink;
  busy[n_busy].key_hash = key_hash;
  busy[n_busy].look_at = moment_after(claim_round.now.moment, ROW_BUSY_PAUSE_MS + (int64)(n_busy * MORE_PAUSE_MS));
  n_busy++;
}

bool busy_rows_full(void) {
  return n_busy >= BUSY_MAX;
}

/* A row that could not be marked holds up those behind it: its key drains no farther. */
int64 busy_row_first(const HeldKey *key) {
  int64 first = PG_INT64_MAX;

  for (int i = 0; i < n_busy; i++)
    if (busy[i].key_hash == key->id.key_hash && busy[i].sink == key->id.sink)
      first = Min(first, busy[i].position);
  return first;
}

int64 busy_rows_first(void) {
  int64 first = PG_INT64_MAX;

  for (int i = 0; i < n_busy; i++)
    first = Min(first, busy[i].position);
  return first;
}

Moment claim_next_moment(void) {
  return n_busy > 0 ? busy[0].look_at : MOMENT_NEVER;
}

void busy_rows_give_back(void) {
  for (int i = 0; i < claim_round.n_looked; i++)
    busy_row_add(claim_round.looked[i].position, claim_round.looked[i].sink, claim_round.looked[i].key_hash);
}

void busy_rows_claim(Snapshot snapshot) {
  RecalledList list = {NULL, 0, NULL, false};
  int kept = 0;

  if (n_busy == 0 || busy[0].look_at > claim_round.now.moment)
    return;
  list.rows = (RecalledRow *)palloc0(sizeof(RecalledRow) * n_busy);
  BusyRow *looked = (BusyRow *)MemoryContextAlloc(claim_round.context, sizeof(BusyRow) * n_busy);
  for (int i = 0; i < n_busy; i++) {
    if (busy[i].look_at <= claim_round.now.moment)
      looked[list.n++] = busy[i];
    else
      busy[kept++] = busy[i];
  }
  n_busy = kept;
  claim_round.looked = looked;
  claim_round.n_looked = list.n;
  for (int i = 0; i < list.n; i++)
    list.rows[i].position = looked[i].position; /* its fate: gone, until it is seen */
  recalled_look(&list, snapshot);
  for (int i = 0; i < list.n; i++)
    if (list.rows[i].fate == RecalledRow::KEEP)
      busy_row_add(looked[i].position, looked[i].sink, looked[i].key_hash);
}
