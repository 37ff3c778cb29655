/*
 * owner_sql.h: fixed statements that run as the owner of outbox.events, so that a producer needs no right on the
 * tables behind it. Plans are kept per backend. Every name in them is qualified, operators too: they run with the
 * caller's search_path.
 */
#pragma once

#include "server/base/server.h"

extern "C" {
#include "executor/spi.h"
}

typedef struct OwnerSql {
  const char *text;
  int nargs;
  const Oid *types;
  SPIPlanPtr plan; /* NULL until first used */
} OwnerSql;

typedef struct OwnerScope {
  Oid user;
  int context;
} OwnerScope;

/* Connects SPI and becomes the owner. An error in between ends with the transaction, which restores the role. */
OwnerScope owner_enter(void);
void owner_leave(OwnerScope scope);

/* Its plan, made at first use. */
SPIPlanPtr owner_plan(OwnerSql *sql);

/* Runs it; the result is the number of rows, SPI_tuptable what it returned. `nulls` as SPI_execute_plan wants it. */
uint64 owner_execute(OwnerSql *sql, Datum *values, const char *nulls);

/* OIDs of what the extension made, from the caches. */
Oid outbox_pending_oid(void);
Oid outbox_sequence_oid(void);

Oid outbox_owner_oid(void); /* of outbox.events */

/* Is the role the owner of outbox.events, or one that may act for it? */
bool is_owner(Oid role);

/* Tells the worker to look again at a pending row whose position it may have passed. */
void queue_rescan(int64 position);
