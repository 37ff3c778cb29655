/* rescan.h: reads single rows again: rows that outbox_internal.rescan_queue names, locked rows, and blockers. All
 * functions run in SPI. */
#pragma once

#include "server/base/server.h"

extern "C" {
#include "storage/itemptr.h"
#include "utils/snapshot.h"
}

typedef struct RescanRow {
  int64 position;
  ItemPointerData ctid; /* of the entry in outbox_internal.rescan_queue */
  uint64 xact;          /* of that entry */
  enum {
    GONE,   /* no pending row has the position; the initial value */
    KEEP,   /* there was no room for the row */
    OTHERS, /* the row belongs to another worker */
    DONE    /* the row was classified */
  } fate;
  Oid sink; /* of a row that is kept, as it is now */
  uint64 key_hash;
} RescanRow;

typedef struct RescanList {
  RescanRow *rows;
  int n;
  RescanRow **by_position; /* sorted by position */
  bool wanted_again;       /* there was no room for some rows */
} RescanList;

/* Reads the rows at these positions, classifies each, releases the keys that a row does not block any more, and sets
 * the fate of each. */
void rescan_look(RescanList *list, Snapshot snapshot);

/* Reads a page of outbox_internal.rescan_queue; true when some rows were left for the next round. Sets `*more` when
 * the next round may begin at once. */
bool rescan_claim(Snapshot snapshot, bool *more);

/* Releases the keys of blockers that have left the table unnoticed. Returns true when more of them may have left, so
 * that the next round should follow at once. */
bool rescan_check_blockers(Snapshot snapshot);
