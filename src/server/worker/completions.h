/*
 * completions.h: takes from the delivery room how events ended, and says when that is to be written down: gathered,
 * since nobody waits for the recording.
 */
#pragma once

#include "server/base/clock.h"

void completions_init(ob_engine *engine);

/* Takes what has come, and logs what the delivery room has to say. Outside a transaction. */
void completions_collect(Now now);

/* An event that ended before it was sent: its key waits, and it comes again after the pause without an attempt spent.
 */
struct Flight;
void completions_add_failed(struct Flight *flight, int64 pause_ms, const char *error, Now now);

/* Takes back the failures by which an outage was recognised: they are not their events' fault. */
void completions_acquit(void);

/* Some are gathered: more of them are no reason to wake up at once. */
bool completions_gathering(void);

/* They should be written down now; at the latest then (MOMENT_NEVER = nothing is to be written). */
bool completions_ripe(Moment now);
Moment completions_record_at(void);

/* What has ended was written down, but for what waits; or could not be. */
void completions_recorded(bool committed);
