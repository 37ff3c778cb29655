/*
 * claim.h: rounds of claiming. A round chooses the next rows of every sink that has room: in order of position from
 * the sink's cursor, and those that the cursor cannot find: rows of late transactions, marked rows of draining keys,
 * due rows, and rows of the rescan queue. Rows are read first, and then checked or locked without waiting.
 */
#pragma once

#include "server/base/clock.h"
#include "server/inflight/events_in_flight.h"

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

/* After the commit, when the batches were submitted: the round is over. */
void claim_settle(void);

/* After an abort: returns all events that the round has claimed, and every scan goes on where the round began. */
void claim_give_back(void);

/* A claimed event was not submitted, or came back unsent: it is claimed again, in its order. */
void claim_return(InFlightEvent *event);

/* Could a round claim something at once, without looking at the table? */
bool claim_can_go_on(TimestampTz now);
