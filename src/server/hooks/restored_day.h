/* restored_day.h: a dump creates its daily partitions of delivered and processed events as tables. CREATE TABLE would
 * fail where a worker has created the same partition meanwhile; so an empty one is dropped first. */
#pragma once

#include "server/base/server.h"

extern "C" {
#include "nodes/parsenodes.h"
}

/* Does the statement create a table in the schema outbox? */
bool restored_day_concerns(Node *statement);

/* Before that statement: drops an empty partition of the same name. */
void restored_day_make_room(Node *statement);
