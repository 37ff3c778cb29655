/* locked_rows.cpp: reads single rows again, by a rescan of their positions. */
#include "server/claim/locked_rows.h"

#include "server/claim/rescan.h"
#include "server/sinks/dispatcher.h"

void locked_rows_claim(Snapshot snapshot) {
  dispatch::LockedRows &rows = dispatcher().locked_rows;
  RescanList list = {NULL, 0, NULL, false};

  if (rows.next_moment() > dispatcher().round.now.moment)
    return;
  require_memory(rows.take_due());
  list.n = rows.look_count();
  list.rows = (RescanRow *)palloc0(sizeof(RescanRow) * list.n);
  for (int i = 0; i < list.n; i++)
    list.rows[i].position = rows.looked(i).position;
  rescan_look(&list, snapshot);
  for (int i = 0; i < list.n; i++)
    if (list.rows[i].fate == RescanRow::KEEP)
      rows.keep(i, list.rows[i].sink, list.rows[i].key_hash);
}
