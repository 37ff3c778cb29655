/*
 * unmodified_rows.h: rows of events_pending that stand where they were read, unchanged, and that nobody holds: almost
 * all, almost always. They are told by place and writer, and seen to page by page below the executor; for the others
 * there is row_lock.h.
 */
#pragma once

#include "server/storage/row_lock.h"

/* In a transaction that has read them. Those that are untouched come first, marked ROW_FREE; returns how many. The
 * array is sorted by place. */
int heap_find_unmodified(RowLock *rows, int n);

/* Deletes those that are untouched, without waiting for anybody. They come first, marked ROW_DELETED; returns how
 * many: none when the table has triggers, rules or whatever else only the executor knows about. */
int heap_delete_unmodified(RowLock *rows, int n);
