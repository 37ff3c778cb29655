/*
 * manual_sink.h: sinks of kind outbox_manual, whose events a program of the team's own claims, acknowledges and
 * refuses in SQL. All that is known of what it has claimed stands in outbox.leases: no worker and no shared memory is
 * needed.
 *
 * A lease is a key's, in an ordered sink, else an event's. Who takes one locks the rows of its events first, without
 * waiting, and gives the key up where it does not get one of them; that the lease is unique decides the rest. Whoever
 * ends one has it locked, then deletes events, and the lease last: so nobody waits in a circle.
 * ack and nack take the claim's token and not ids alone: whoever lost a lease must not end what another one has. A
 * lease is a row of a small table and not a column of the event: a claim would write each event's row, payload and
 * indexes anew. A lease that ends spends no attempt.
 */
#pragma once

#include "server/catalog/sink_common.h"
#include "server/storage/owner_sql.h"
#include "server/storage/sql.h"

typedef struct ManualSink {
  Oid server;
  char name[NAMEDATALEN];
  Datum names; /* text[]: its name, and its former ones, by which rows find it */
  SinkCommon common;
} ManualSink;

/* Errors unless it is such a sink and the role has USAGE on it. As the caller, before owner_enter(). */
void manual_sink_require(const char *name, Oid role, ManualSink *sink);
/* Its names. After owner_enter(). */
void manual_sink_read_names(ManualSink *sink);
