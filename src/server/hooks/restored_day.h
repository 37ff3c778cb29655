/* restored_day.h: a dump brings its days of delivered events (and of processed ones) as tables of its own. Where a
 * worker has made the same day meanwhile, CREATE TABLE would fail; so an empty day gives way to it. */
#pragma once

#include "server/base/server.h"

extern "C" {
#include "nodes/parsenodes.h"
}

/* Does the statement make a table in our schema? */
bool restored_day_concerns(Node *statement);

/* Before it: drops an empty partition of that name. */
void restored_day_make_room(Node *statement);
