/*
 * durable.h: no phantom. A row written under synchronous_commit = off is visible before its WAL is flushed; nothing
 * is handed to a sink before the transaction that wrote it would survive a crash.
 */
#pragma once

#include "server/base/server.h"

/* Begins: everything that is visible now becomes durable. In no transaction. */
void durable_init(void);

/* A claimed row of this xmin: remembers how far WAL must be flushed. Free for synchronous commits. */
void durable_note(TransactionId xmin);

/* Makes what was noted durable; before submitting. */
void durable_flush(void);
