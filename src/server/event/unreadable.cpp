/*
 * unreadable.cpp: the error that aborted the round is kept with the row's position and xmin. The next round records
 * it as a failure that uses up no attempt, and claims the other rows. outbox_internal.route_waiting() reads in a
 * subtransaction instead, and repeats without such a row.
 * The first error names the row, because unreadable_begin() and unreadable_done() enclose the code that reads its
 * values. That takes three places in a claim, and 12 instructions per event: 0.06 % of the worker's main thread in a
 * drain. Halving the read, as a batch that cannot be recorded is halved (dispatch/recording.h), would delete about 25
 * lines, and need the 45 that recording.cpp has for it. A read of 10,000 rows would fail about 15 times instead of
 * once, and 6 of the 13 kinds of reads (dispatch::RowsOf) have no limit that could be halved. The part of the last
 * row that fails would still have to be noted: a row whose key cannot be read is passed, another one is recorded as
 * failed.
 */
#include "server/event/unreadable.h"

#include "server/base/error_class.h"
#include "server/base/error_text.h"

extern "C" {
#include "access/xact.h"
#include "utils/hsearch.h"
#include "utils/memutils.h"
#include "utils/resowner.h"
}

/* Each further try costs an aborted round until a user repairs the row. */
static const int64 FIRST_PAUSE_MS = 60 * 1000;
static const int64 LAST_PAUSE_MS = 3600 * 1000;

static HTAB *rows = NULL; /* NULL until there is an unreadable row */

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

/* Can the row that is being read have caused an error with this SQLSTATE? */
static bool is_of_row(int code) {
  return part_read == PART_ROUTED    ? error_is_of_written_row(code)
         : part_read == PART_ROUTING ? error_is_of_row_to_leave_out(code)
                                     : error_is_of_rows(code);
}

/* Attributes the error to the row that is being read. */
static void attribute_error(const char *error, UnreadableRow *row) {
  row->position = position_read;
  row->xmin = xmin_read;
  row->part = part_read;
  row->failures = 0;
  const int length = snprintf(row->error, sizeof(row->error),
                              "the event cannot be %s: ", part_read == PART_ROUTED ? "routed" : "read");
  copy_error(row->error + length, sizeof(row->error) - length, error);
  unreadable_done();
}

void unreadable_remember(const UnreadableRow *failed) {
  bool found;

  if (rows == NULL) {
    HASHCTL control;
    control.keysize = sizeof(int64);
    control.entrysize = sizeof(UnreadableRow);
    rows = hash_create("outbox unreadable rows", 64, &control, HASH_ELEM | HASH_BLOBS);
  }
  UnreadableRow *row = (UnreadableRow *)hash_search(rows, &failed->position, HASH_ENTER, &found);
  int failures = found ? row->failures + 1 : 1;
  *row = *failed;
  row->failures = failures;
}

bool unreadable_aborted(const char *error, int code) {
  UnreadableRow failed;

  if (position_read == 0 || !is_of_row(code))
    return false;
  attribute_error(error, &failed);
  unreadable_remember(&failed);
  return true;
}

UnreadableTry unreadable_try(void (*read)(void *), void *argument, UnreadableRow *failed) {
  Assert(IsTransactionState());
  MemoryContext context = CurrentMemoryContext;
  ResourceOwner owner = CurrentResourceOwner;
  ErrorData *volatile error = NULL;

  unreadable_done();
  BeginInternalSubTransaction(NULL);
  MemoryContextSwitchTo(context);
  PG_TRY();
  {
    read(argument);
    ReleaseCurrentSubTransaction();
  }
  PG_CATCH();
  {
    MemoryContextSwitchTo(context);
    error = CopyErrorData();
    FlushErrorState();
    RollbackAndReleaseCurrentSubTransaction();
  }
  PG_END_TRY();
  MemoryContextSwitchTo(context);
  CurrentResourceOwner = owner;
  if (error == NULL)
    return TRY_SUCCEEDED;
  const bool some = position_read == 0;
  if (!(some ? error_is_of_written_row(error->sqlerrcode) : is_of_row(error->sqlerrcode))) {
    unreadable_done();
    ReThrowError(error);
  }
  attribute_error(error->message ? error->message : "", failed);
  FreeErrorData(error);
  return some ? TRY_FAILED_AT_SOME : TRY_FAILED_AT_ROW;
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
