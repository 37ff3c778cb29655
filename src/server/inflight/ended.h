/* ended.h: decides when the outcomes of ended events are recorded. */
#pragma once

#include "server/inflight/in_flight.h"

/* An event has ended: its outcome is recorded within 20 ms. */
void ended_note(Moment now);

/* An event has ended by a failure that may be the sink's own. The failure is recorded at this moment, unless it is
 * discarded before. */
void ended_suspect(Moment record_after);

/* Ends an event before it was sent. It is tried again after the pause, without using up an attempt, and blocks its
 * key until then.
 */
void ended_fail(InFlightEvent *event, int64 pause_ms, const char *error, Now now);

/* Are there ended events to be recorded? Then a further completion need not wake the worker at once. */
bool ended_any_unrecorded(void);

/* Should the outcomes be recorded now? ended_record_at() is the latest moment; MOMENT_NEVER = there is none to
 * record. */
bool ended_record_is_due(Moment now);
Moment ended_record_at(void);

/* After a recording: `committed` says whether its transaction has committed. */
void ended_recorded(bool committed);
