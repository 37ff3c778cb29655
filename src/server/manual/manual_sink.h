/*
 * manual_sink.h: sinks of kind outbox_manual, whose events a program of the team's own claims, acknowledges and
 * refuses in SQL. All that is known of what it has claimed stands in outbox.leases: no worker and no shared memory is
 * needed.
 *
 * A lease is a key's, in an ordered sink, else an event's. Who takes one locks the rows of its events first, without
 * waiting, and gives the key up where it does not get one of them; that the lease is unique decides the rest. Whoever
 * ends one has it locked, then deletes events, and the lease last: so nobody waits in a circle.
 */
#pragma once

#include "server/catalog/sink_common.h"
#include "server/storage/owner_sql.h"
#include "server/storage/sql.h"

extern "C" {
#include "utils/uuid.h"
}

typedef struct ManualSink {
  Oid server;
  char name[NAMEDATALEN];
  Datum names; /* text[]: and what it was called before, by which rows find it */
  SinkCommon common;
} ManualSink;

/* Errors unless it is such a sink and the role has USAGE on it. As the caller, before owner_enter(). */
void manual_sink_require(const char *name, Oid role, ManualSink *sink);
/* Likewise for a lease's; false when the server is gone. */
bool manual_sink_of(Oid server, Oid role, ManualSink *sink);
/* What it was called before. After owner_enter(). */
void manual_sink_read_names(ManualSink *sink);

/* ---- counters: shown in outbox.sinks where the library is preloaded, and only of what is committed ---- */

typedef struct ManualCounts {
  uint64 delivered, retried, failed, redriven_late;
} ManualCounts;

void manual_count(Oid server, const ManualCounts *counts);
void manual_count_latency(Oid server, int64 microseconds);
/* Kept for a look: not undone when the transaction fails. */
void manual_count_error(Oid server, const char *error);
