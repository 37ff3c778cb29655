/*
 * rename_lock.h: locks the tables of events against everybody who writes or locks rows of them, for the commit of a
 * RENAME. Others queue behind a session that waits for a lock, so it waits for a moment at a time and leaves the
 * queue in between.
 */
#pragma once

#include "server/base/server.h"

/* Locks outbox.events_pending and outbox.events_failed until the end of the transaction. Returns false if that fails
 * for `timeout_ms`: a transaction that has written or locked events is open. In a transaction. */
bool rename_lock_tables(int timeout_ms);
