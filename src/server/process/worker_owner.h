/*
 * worker_owner.h: runs the worker's statements with the privileges of the owner of outbox.events, as autovacuum and
 * subscriptions do. The process belongs to the bootstrap superuser, and users' triggers, constraints, index
 * expressions and policies run within its statements.
 */
#pragma once

#include "server/base/server.h"

/* At the start of a transaction: switches to the owner's role until its end. */
void worker_owner_enter(void);

/* Before the commit: fires deferred triggers, and restores settings that a trigger of the owner has changed. */
void worker_owner_leave_settings(void);

/* After the commit: switches back. (An abort does so too.) */
void worker_owner_leave(void);
