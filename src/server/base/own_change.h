/*
 * own_change.h: tells the triggers on events whether a row is changed by a statement of the extension, such as a
 * worker's recording, or by a user. A statement that runs inside one of the extension's, in a user's trigger, is the
 * user's: what it changes must be read again.
 */
#pragma once

#include "server/base/server.h"

/* The number of triggers that this code runs in, each inside the one before. */
int trigger_depth(void);

/* Changes by statements that this process runs from here on, at its present depth of triggers, are the extension's.
 * Returns what own_changes_end() takes; call that after an error as well. A worker never calls it. */
int own_changes_begin(void);
void own_changes_end(int before);

/* In a trigger: was it fired by a statement of the extension? */
bool is_own_change(void);
