/*
 * session_events.h: the events that this session has enqueued last. A delivered row is deleted, so the table cannot
 * tell a delivered event from one that was rolled back or never enqueued; the session can, for its own.
 */
#pragma once

#include "server/base/server.h"

extern "C" {
#include "utils/uuid.h"
}

typedef enum SessionEvent {
  SESSION_EVENT_UNKNOWN, /* not enqueued here, or too many events ago */
  SESSION_EVENT_OPEN,    /* its transaction is prepared, or still runs */
  SESSION_EVENT_COMMITTED,
  SESSION_EVENT_ROLLED_BACK
} SessionEvent;

/* Remembers an event that the current (sub)transaction enqueues. */
void session_events_add(const pg_uuid_t *id);
/* Remembers an event that another transaction has enqueued and committed, if the session does not know it. */
void session_events_add_committed(const pg_uuid_t *id);

SessionEvent session_events_find(const pg_uuid_t *id);
