/*
 * durable.h: keeps events of transactions that a crash can still undo from being sent. A row written under
 * synchronous_commit = off is visible before its WAL is flushed; the worker flushes it before it hands the event to a
 * sink.
 */
#pragma once

#include "server/base/server.h"

/* Makes everything durable that is visible now. Outside a transaction: it commits one of its own. */
void durable_init(void);

/* Remembers up to which LSN the WAL of a claimed row with this xmin must be flushed. A synchronous commit costs
 * nothing here. */
void durable_note(TransactionId xmin);

/* Flushes the WAL of all noted rows; before their events are submitted. Outside a transaction. */
void durable_flush(void);
