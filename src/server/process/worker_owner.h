/*
 * worker_owner.h: whose rights the worker's statements have. Its process belongs to the bootstrap superuser, and
 * users' triggers, constraints, index expressions and policies run within its statements: so these run as the owner
 * of outbox.events, as autovacuum and subscriptions do it.
 */
#pragma once

#include "server/base/server.h"

/* At the beginning of a transaction: until its end this process is the owner. */
void worker_owner_enter(void);

/* Before the commit: settings that a trigger of the owner's has changed are as before. */
void worker_owner_leave_settings(void);

/* After the commit. (An abort ends it too.) */
void worker_owner_leave(void);
