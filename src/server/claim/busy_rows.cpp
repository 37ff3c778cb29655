/* busy_rows.cpp: looks again at rows that could not be taken or marked yet: somebody had locked them, or they lost
 * the lead of their key. */
#include "server/claim/busy_rows.h"

#include "server/claim/claim_round.h"
#include "server/claim/recalled.h"
#include "server/inflight/busy_list.h"

void busy_rows_give_back(void) {
  for (int i = 0; i < claim_round.n_looked; i++)
    busy_row_add(claim_round.looked[i].position, claim_round.looked[i].sink, claim_round.looked[i].key_hash);
}

void busy_rows_claim(Snapshot snapshot) {
  const Moment now = claim_round.now.moment;
  RecalledList list = {NULL, 0, NULL, false};

  if (busy_rows_next_moment() > now)
    return;
  list.rows = (RecalledRow *)palloc0(sizeof(RecalledRow) * busy_rows_count());
  BusyRow *looked = (BusyRow *)MemoryContextAlloc(claim_round.context, sizeof(BusyRow) * busy_rows_count());
  list.n = busy_rows_take_due(now, looked);
  claim_round.looked = looked;
  claim_round.n_looked = list.n;
  for (int i = 0; i < list.n; i++)
    list.rows[i].position = looked[i].position; /* its fate: gone, until it is seen */
  recalled_look(&list, snapshot);
  for (int i = 0; i < list.n; i++)
    if (list.rows[i].fate == RecalledRow::KEEP)
      busy_row_add(looked[i].position, looked[i].sink, looked[i].key_hash);
}
