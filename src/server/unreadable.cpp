#include "unreadable.h"

extern "C" {
#include "utils/hsearch.h"
}

/* Each further try costs a round that fails, for as long as nobody mends the row. */
static const int64 FIRST_PAUSE_MS = 60 * 1000;
static const int64 LAST_PAUSE_MS = 3600 * 1000;

static HTAB *rows = NULL; /* NULL until there is one */

static int64 position_read = 0; /* 0 = no row is being read */
static TransactionId xmin_read;
static UnreadablePart part_read;

void unreadable_begin(int64 position, TransactionId xmin, UnreadablePart part) {
  position_read = position;
  xmin_read = xmin;
  part_read = part;
}

void unreadable_done(void) {
  position_read = 0;
}

bool unreadable_aborted(const char *error) {
  bool found;

  if (position_read == 0)
    return false;
  if (rows == NULL) {
    HASHCTL control;
    control.keysize = sizeof(int64);
    control.entrysize = sizeof(UnreadableRow);
    rows = hash_create("outbox unreadable rows", 64, &control, HASH_ELEM | HASH_BLOBS);
  }
  UnreadableRow *row = (UnreadableRow *)hash_search(rows, &position_read, HASH_ENTER, &found);
  row->failures = found ? row->failures + 1 : 1;
  row->xmin = xmin_read;
  row->part = part_read;
  snprintf(row->error, sizeof(row->error), "the event cannot be read: %s", error);
  unreadable_done();
  return true;
}

bool unreadable_has_sink(void) {
  return part_read == PART_EVENT;
}

const UnreadableRow *unreadable_find(int64 position, TransactionId xmin) {
  if (likely(rows == NULL))
    return NULL;
  const UnreadableRow *row = (const UnreadableRow *)hash_search(rows, &position, HASH_FIND, NULL);
  return row && row->xmin == xmin ? row : NULL;
}

int64 unreadable_pause_ms(const UnreadableRow *row) {
  return Min(FIRST_PAUSE_MS << Min(row->failures - 1, 10), LAST_PAUSE_MS);
}

void unreadable_forget(int64 position) {
  if (unlikely(rows != NULL))
    (void)hash_search(rows, &position, HASH_REMOVE, NULL);
}
