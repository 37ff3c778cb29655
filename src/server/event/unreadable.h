/*
 * unreadable.h: pending rows that cannot be read, because of text without an equivalent in UTF-8 or a damaged TOAST
 * value. The error aborts the worker's round. It is remembered for this version of the row, so that the next round
 * records it as the row's failure and claims the other rows.
 */
#pragma once

#include "server/base/server.h"

/* The part of a row that is being read. */
typedef enum UnreadablePart {
  PART_KEY,     /* sink, partition key and origin */
  PART_EVENT,   /* everything that is sent */
  PART_ROUTING, /* what routes match, of a row without a sink */
  PART_ROUTED   /* nothing: it is written with its sink */
} UnreadablePart;

/* From here to unreadable_done() an error is attributed to this row. */
void unreadable_begin(int64 position, TransactionId xmin, UnreadablePart part);
void unreadable_done(void);

/* After a round that was aborted by this error: remembers the row that was being read. Returns false when no row was,
 * or when it is no error of the row. */
bool unreadable_aborted(const char *error, int code);

/* Is the sink of that row known, so that its statistics can show the error? */
bool unreadable_has_sink(void);

/* The error that reading this version of a row raised. */
typedef struct UnreadableRow {
  int64 position; /* the hash key: first */
  TransactionId xmin;
  UnreadablePart part;
  int failures;
  char error[1024];
} UnreadableRow;

typedef enum UnreadableTry {
  TRY_SUCCEEDED,
  TRY_FAILED_AT_ROW, /* `failed` says which */
  /* A statement that writes several rows raised an error that one of them may have caused: `failed` has the error
   * alone. */
  TRY_FAILED_AT_SOME
} UnreadableTry;

/* Calls `read` in a subtransaction, which is rolled back when an error of a row ends it. Throws any other error
 * again. In a transaction. */
UnreadableTry unreadable_try(void (*read)(void *), void *argument, UnreadableRow *failed);

/* Remembers a failed row, as unreadable_aborted() does. */
void unreadable_remember(const UnreadableRow *failed);

/* Returns NULL when this version of the row is not known to be unreadable. */
const UnreadableRow *unreadable_find(int64 position, TransactionId xmin);

/* The pause before the row is read again, in milliseconds. */
int64 unreadable_pause_ms(const UnreadableRow *row);

/* Forgets a row that could be read. */
void unreadable_forget(int64 position);
