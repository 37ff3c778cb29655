/* rescan.h: rows that came back behind the cursors (outbox_internal.rescan_queue), and heads that left. All in SPI.
 */
#pragma once

#include "server/base/server.h"

extern "C" {
#include "storage/itemptr.h"
#include "utils/snapshot.h"
}

/* Looks at single positions: classifies each row, releases the keys that a row has left, and tells which had no room
 * (KEEP) or belong to another worker. */
typedef struct RescanRow {
  int64 position;
  ItemPointerData ctid; /* in outbox_internal.rescan_queue */
  uint64 xact;          /* likewise */
  enum { GONE, KEEP, OTHERS, DONE } fate;
} RescanRow;

typedef struct RescanList {
  RescanRow *rows;
  int n;
  RescanRow **by_position; /* while they are looked at */
  bool wanted_again;       /* some had no room */
} RescanList;

void rescan_look(RescanList *list, Snapshot snapshot);

/* Reads a page of outbox_internal.rescan_queue; true when some rows were left for the next round. `more` when that
 * may begin at once. */
bool rescan_claim(Snapshot snapshot, bool *more);
/* The next read of it begins after here. */
void rescan_next_place(uint64 *xact, int64 *position);
/* Shards were taken: what belonged to others is read again. */
void rescan_restart(void);
/* After an abort: what the round read of it comes again. */
void rescan_give_back(void);

/* A head can leave unseen: deleted in flight, recalled to another worker, truncated. Its key goes on. Many heads are
 * looked up in slices; true when one had left, so that more may have. */
bool rescan_check_blockers(Snapshot snapshot);
