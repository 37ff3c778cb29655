/* ended.h: when events that have ended are to be recorded. */
#pragma once

#include "server/inflight/in_flight.h"

/* One more has ended. */
void ended_note(Moment now);

/* One has ended whose failure may be the sink's own: it is recorded then, unless it is taken back before. */
void ended_suspect(Moment record_after);

/* An event that ended before it was sent: its key waits, and it comes again after the pause without an attempt spent.
 */
void ended_fail(InFlightEvent *event, int64 pause_ms, const char *error, Now now);

/* Some are gathered: more of them are no reason to wake up at once. */
bool ended_any_unrecorded(void);

/* They should be written down now; at the latest then (MOMENT_NEVER = nothing is to be written). */
bool ended_record_is_due(Moment now);
Moment ended_record_at(void);

/* What has ended was written down, but for what waits; or could not be. */
void ended_recorded(bool committed);
