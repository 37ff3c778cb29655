/*
 * claim.h: rounds of claiming. A round chooses the next rows of every sink that has room: in order of position from
 * the sink's cursor, and those that the cursor cannot find: rows of late transactions, marked rows of draining keys,
 * due rows, and rows of the rescan queue. Rows are read first, and then checked or locked without waiting.
 */
#pragma once

#include "server/base/clock.h"
#include "server/inflight/events_in_flight.h"

#include "dispatch/round/claim_round.h"

/* Once: rows of this origin are delivered. */
void claim_init(int64 origin);

/* No event can be claimed for this reason: outbox.sinks shows it as the error of every sink. */
void claim_tell_error(const char *error);

/* In a transaction. Fills the sinks' batches with claimed events; their memory lives until the next claim.
 * `*rescan` asks for the rescan queue to be read, and comes back true when the next round should read it too. True
 * when there may be more at once. */
bool claim_events(Now now, bool *rescan);

/* In a transaction, when only the safety poll asks for a round: could a round find anything? */
bool claim_has_news(void);

/* For what a round is asked outside of a transaction. */
dispatch::ClaimRound claim_round(void);
