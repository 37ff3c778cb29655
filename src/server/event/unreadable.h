/*
 * unreadable.h: pending rows that cannot be read: text that has no equivalent in UTF-8, a damaged TOAST value. The
 * error ends the round that claims. It is remembered for this version of the row, so that the next round records it
 * as the row's failure and claims everything else.
 */
#pragma once

#include "server/base/server.h"

/* How much of a row is being read. */
typedef enum UnreadablePart {
  PART_KEY,    /* its sink and its key */
  PART_EVENT,  /* all that is sent */
  PART_ROUTING /* what routes look at, of a row without a sink */
} UnreadablePart;

/* From here to unreadable_done() an error is this row's own. */
void unreadable_begin(int64 position, TransactionId xmin, UnreadablePart part);
void unreadable_done(void);

/* After a round that failed with this error: true when it was a row's, which is remembered. */
bool unreadable_aborted(const char *error);

/* Of that row: is its sink known, so that its error can be told there? */
bool unreadable_has_sink(void);

/* What an error said when this version of the row was read. */
typedef struct UnreadableRow {
  int64 position; /* the hash key: first */
  TransactionId xmin;
  UnreadablePart part;
  int failures;
  char error[256];
} UnreadableRow;
/* Does this in a subtransaction. False when an error of one row ended it: nothing of it was done, and `failed` has
 * the row. Any other error is thrown. */
bool unreadable_try(void (*read)(void *), void *argument, UnreadableRow *failed);

/* As after a round that failed. */
void unreadable_remember(const UnreadableRow *failed);

/* NULL: it is not known to be unreadable. */
const UnreadableRow *unreadable_find(int64 position, TransactionId xmin);

/* After so long the row is to be read again. */
int64 unreadable_pause_ms(const UnreadableRow *row);

/* It was read after all. */
void unreadable_forget(int64 position);
