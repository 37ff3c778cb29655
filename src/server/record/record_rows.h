/*
 * record_rows.h: writes what becomes of the rows of ended events, one statement for all rows of one kind. In the
 * transaction that has locked them, in SPI; without rows they do nothing.
 */
#pragma once

#include "server/base/clock.h"
#include "server/inflight/in_flight.h"

/* Rows that are recorded in one way; memory of the transaction. */
typedef struct RecordedRows {
  ItemPointerData *tids;
  InFlightEvent **events;
  int n;
} RecordedRows;

/* None, with room for so many. */
RecordedRows recorded_rows(int max);

/* `ctid`: where it is locked. */
void recorded_rows_add(RecordedRows *rows, InFlightEvent *event, ItemPointerData ctid);

void recorded_rows_delete(const RecordedRows *rows);

/* They move to SENT, into the partition of the day. */
void recorded_rows_keep(const RecordedRows *rows, Now now);

/* They move to FAILED. Their keys are blocked, or go on. */
void recorded_rows_move_to_dead_letters(const RecordedRows *rows);

/* They get the time of their next attempt; those behind an earlier failing event of their key are marked. */
void recorded_rows_reschedule(const RecordedRows *rows, Now now);
