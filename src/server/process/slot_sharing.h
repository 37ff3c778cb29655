/*
 * slot_sharing.h: shares background worker slots when more databases have work than there are slots. While a database
 * waits without a worker, the worker that has run longest, for at least 2 s, gives its slot up, even if it is busy,
 * and its database joins the queue. So each waiting database gets a slot before another one gets its next.
 */
#pragma once

#include "server/base/clock.h"

/* Revokes the slots of as many workers as databases wait, counting those that are exiting already. Lowers `*sleep_ms`
 * to the launcher's longest sleep. In the launcher; takes the lock. */
void slot_sharing_revoke(int waiting, Moment now, long *sleep_ms);
