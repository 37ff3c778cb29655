/*
 * owner_sql.h: runs fixed statements as the owner of outbox.events, so that a producer needs no privilege on the
 * extension's internal tables. Each backend keeps their plans. All names, operators and collations in them must be
 * qualified, because they run with the caller's search_path.
 */
#pragma once

#include "server/storage/sql.h"

typedef struct OwnerScope {
  Oid user;
  int context;
} OwnerScope;

/* owner_enter() connects SPI and switches to the owner's role; owner_leave() undoes both. After an error in between,
 * the abort of the transaction restores the role. In a transaction. */
OwnerScope owner_enter(void);
void owner_leave(OwnerScope scope);

/* Returns the statement's plan, prepared at its first use. In SPI. */
SPIPlanPtr owner_plan(Statement *statement);

/* Runs the statement and returns the number of rows; SPI_tuptable has the rows. `nulls` as in SPI_execute_plan(). In
 * SPI. */
uint64 owner_execute(Statement *statement, Datum *values, const char *nulls);

/* OIDs of outbox.events, outbox.events_pending and outbox.events_position, cached. An error when the extension's
 * tables are missing. In a transaction. */
Oid outbox_events_oid(void);
Oid outbox_pending_oid(void);
Oid outbox_sequence_oid(void);

Oid outbox_owner_oid(void); /* of outbox.events */

/* No sink is renamed from now until the end of the transaction. Called before the name of a sink is looked up for a
 * change of its rows; a transaction that has locked the table for writing needs no call. In a transaction. */
void hold_sink_names(void);

/* Does the role have the privileges of the owner of outbox.events? In a transaction. */
bool is_owner(Oid role);

/* Queues a pending row for a rescan, since the worker may have passed its position. In a transaction, whose commit
 * wakes the worker. */
void queue_rescan(int64 position);
