/*
 * unmodified_rows.h: a fast path for rows of events_pending that are unchanged since they were read and not locked:
 * nearly all rows. They are recognized by ctid and xmin, and handled page by page below the executor. row_lock.h
 * handles the others.
 */
#pragma once

#include "server/storage/row_lock.h"

/* Moves the unmodified rows to the front, marked ROW_FREE, and returns their number. Sets `file` of all rows, if the
 * table is a heap. In the transaction that has read them. */
int heap_find_unmodified(RowLock *rows, int n);

/* Deletes the unmodified rows without waiting for a lock. Moves them to the front, marked ROW_DELETED, and returns
 * their number: 0 when the table has users' triggers on DELETE, or is no heap, because those need the
 * executor. In a transaction. */
int heap_delete_unmodified(RowLock *rows, int n);
