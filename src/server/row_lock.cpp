#include "row_lock.h"

#include "sql.h"

extern "C" {
#include "catalog/pg_type.h"
#include "utils/snapmgr.h"
}

static Statement lock_by_ctid = {
    "SELECT position, ctid FROM outbox.events_pending WHERE ctid = ANY ($1) FOR UPDATE SKIP LOCKED",
    1,
    {TIDARRAYOID},
    NULL};
static Statement lock_by_position = {
    "SELECT position, ctid FROM outbox.events_pending WHERE position = ANY ($1) FOR UPDATE SKIP LOCKED",
    1,
    {INT8ARRAYOID},
    NULL};
static Statement look_by_position = {
    "SELECT position FROM outbox.events_pending WHERE position = ANY ($1)", 1, {INT8ARRAYOID}, NULL};

typedef struct LockRun {
  RowLock *locks; /* by ctid */
  int n;
  RowLock **missing; /* by position */
  int n_missing;
} LockRun;

static int by_ctid(const void *a, const void *b) {
  return ItemPointerCompare((ItemPointer) & ((const RowLock *)a)->ctid, (ItemPointer) & ((const RowLock *)b)->ctid);
}

static bool got_by_ctid(TupleTableSlot *row, void *context) {
  LockRun *run = (LockRun *)context;
  RowLock wanted;

  wanted.ctid = *(ItemPointer)DatumGetPointer(row->tts_values[1]);
  RowLock *lock = (RowLock *)bsearch(&wanted, run->locks, run->n, sizeof(RowLock), by_ctid);
  /* A place can have been vacuumed and given to another row: only the position says whose lock this is. */
  if (lock && lock->position == DatumGetInt64(row->tts_values[0]))
    lock->result = ROW_LOCKED;
  return true;
}

static int by_position(const void *a, const void *b) {
  int64 left = (*(RowLock *const *)a)->position, right = (*(RowLock *const *)b)->position;

  return left < right ? -1 : left > right;
}

static RowLock *find_position(LockRun *run, int64 position) {
  RowLock key;
  RowLock *wanted = &key;

  key.position = position;
  RowLock **found = (RowLock **)bsearch(&wanted, run->missing, run->n_missing, sizeof(RowLock *), by_position);
  return found ? *found : NULL;
}

static bool got_by_position(TupleTableSlot *row, void *context) {
  RowLock *lock = find_position((LockRun *)context, DatumGetInt64(row->tts_values[0]));

  if (lock) {
    lock->result = ROW_LOCKED;
    lock->ctid = *(ItemPointer)DatumGetPointer(row->tts_values[1]);
  }
  return true;
}

static bool seen_by_position(TupleTableSlot *row, void *context) {
  RowLock *lock = find_position((LockRun *)context, DatumGetInt64(row->tts_values[0]));

  if (lock)
    lock->result = ROW_BUSY;
  return true;
}

void row_lock(RowLock *locks, int n, bool follow) {
  LockRun run = {locks, n, NULL, 0};

  if (n == 0)
    return;
  ItemPointerData *tids = (ItemPointerData *)palloc(sizeof(ItemPointerData) * n);
  for (int i = 0; i < n; i++) {
    tids[i] = locks[i].ctid;
    locks[i].result = ROW_GONE;
  }
  qsort(locks, n, sizeof(RowLock), by_ctid);
  Datum by_place = tid_array(tids, n);
  statement_write(&lock_by_ctid, &by_place, got_by_ctid, &run);

  /* The few that are not where they were: moved, held by somebody, or gone. */
  run.missing = (RowLock **)palloc(sizeof(RowLock *) * n);
  for (int i = 0; i < n; i++)
    if (locks[i].result != ROW_LOCKED)
      run.missing[run.n_missing++] = &locks[i];
  if (run.n_missing > 0) {
    qsort(run.missing, run.n_missing, sizeof(RowLock *), by_position);
    int64 *positions = (int64 *)palloc(sizeof(int64) * run.n_missing);
    for (int i = 0; i < run.n_missing; i++)
      positions[i] = run.missing[i]->position;
    Datum by_key = int8_array(positions, run.n_missing);
    statement_read(&look_by_position, &by_key, InvalidSnapshot, seen_by_position, &run);
    if (follow)
      statement_write(&lock_by_position, &by_key, got_by_position, &run);
  }
  pfree(run.missing);
  pfree(tids);
}
