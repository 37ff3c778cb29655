/* extension_drop.h: a warning of the events that DROP EXTENSION outbox deletes. */
#pragma once

#include "server/base/server.h"

extern "C" {
#include "nodes/parsenodes.h"
}

typedef struct DroppedEvents {
  int64 pending;
  int64 dead_letters;
} DroppedEvents;

/* Counts the events that nobody has received, if the statement drops the extension; otherwise all counts are 0. */
DroppedEvents extension_drop_count(Node *statement);

/* After the statement. */
void extension_drop_warn(const DroppedEvents *events);
