/* busy_list.cpp: the list of the rows that could not be taken or marked yet. It knows positions and keys only: what
 * is to become of a row is decided when it is read again. */
#include "server/inflight/busy_list.h"

#include "server/storage/row_lock.h"

extern "C" {
#include "utils/memutils.h"
}

/* A user's UPDATE of a whole backlog: memory, and the time that the looks take, are bounded. */
static const int BUSY_MAX = 20000;
static const double MORE_PAUSE_MS = 0.1; /* per row that is busy */

static BusyRow *busy = NULL;
static int n_busy = 0, max_busy = 0;
static Moment round_began = MOMENT_NONE;

void busy_list_begin_round(Moment now) {
  round_began = now;
}

void busy_row_add(int64 position, Oid sink, uint64 key_hash) {
  if (n_busy == max_busy) {
    max_busy = Max(64, max_busy * 2);
    busy = busy ? (BusyRow *)repalloc(busy, sizeof(BusyRow) * max_busy)
                : (BusyRow *)MemoryContextAlloc(TopMemoryContext, sizeof(BusyRow) * max_busy);
  }
  busy[n_busy].position = position;
  busy[n_busy].sink = sink;
  busy[n_busy].key_hash = key_hash;
  busy[n_busy].look_at = moment_after(round_began, ROW_BUSY_PAUSE_MS + (int64)(n_busy * MORE_PAUSE_MS));
  n_busy++;
}

int64 busy_row_first(Oid sink, uint64 key_hash) {
  int64 first = PG_INT64_MAX;

  for (int i = 0; i < n_busy; i++)
    if (busy[i].key_hash == key_hash && busy[i].sink == sink)
      first = Min(first, busy[i].position);
  return first;
}

int64 busy_rows_first(void) {
  int64 first = PG_INT64_MAX;

  for (int i = 0; i < n_busy; i++)
    first = Min(first, busy[i].position);
  return first;
}

int busy_rows_count(void) {
  return n_busy;
}

bool busy_rows_full(void) {
  return n_busy >= BUSY_MAX;
}

Moment busy_rows_next_moment(void) {
  return n_busy > 0 ? busy[0].look_at : MOMENT_NEVER;
}

int busy_rows_take_due(Moment now, BusyRow *due) {
  int n_due = 0, kept = 0;

  for (int i = 0; i < n_busy; i++) {
    if (busy[i].look_at <= now)
      due[n_due++] = busy[i];
    else
      busy[kept++] = busy[i];
  }
  n_busy = kept;
  return n_due;
}
