/* busy_list.h: the rows that could not be taken or marked yet: somebody had locked them, or they lost the lead of
 * their key. Each is looked at again after a pause. */
#pragma once

#include "server/base/clock.h"

typedef struct BusyRow {
  int64 position;
  Moment look_at;
  Oid sink;
  uint64 key_hash;
} BusyRow;

/* A round begins: the pauses of the rows that are added from now on count from here. */
void busy_list_begin_round(Moment now);

/* Somebody holds this row, or it has lost the lead of its key: it is looked at again soon, and until it is taken or
 * marked its key does not drain past it. */
void busy_row_add(int64 position, Oid sink, uint64 key_hash);

/* The first one of this key; PG_INT64_MAX when there is none. A row that could not be marked holds up those behind
 * it: its key drains no farther. */
int64 busy_row_first(Oid sink, uint64 key_hash);

/* The first one of all; PG_INT64_MAX when there is none. */
int64 busy_rows_first(void);

int busy_rows_count(void);

/* So many are held that no more are looked for. */
bool busy_rows_full(void);

/* When they should be looked at again; MOMENT_NEVER = there are none. */
Moment busy_rows_next_moment(void);

/* Takes those whose time has come off the list, into an array with room for all. Returns how many. */
int busy_rows_take_due(Moment now, BusyRow *due);
