/*
 * claim.h: chooses the next rows of every sink that has room: in order of position from the sink's cursor, plus those
 * that the cursor cannot find: late commits (by transaction), rows behind a key that drains, due ones, recalled ones.
 * Rows are read first, so that each is seen and known, and then locked without waiting.
 */
#pragma once

#include "server/base/clock.h"
#include "server/inflight/in_flight.h"

/* Once: the rows of which origin are ours. */
void claim_init(int64 origin);

/* Nothing can be claimed for this reason: outbox.sinks has it with every sink. */
void claim_tell_error(const char *error);

/* In a transaction. Fills the sinks' batches with claimed events; their memory lives until the next claim.
 * `*rescan` asks for the rescan queue to be read, and comes back true when the next round should read it too. True
 * when there may be more at once. */
bool claim_events(Now now, bool *rescan);

/* In a transaction, when nothing but the safety poll asks for a round: is there anything that it could find? */
bool claim_has_news(void);

/* After the commit, when the batches were handed over. */
void claim_settle(void);

/* After an abort: gives everything back that was claimed, and every stream begins again where the round began. */
void claim_give_back(void);

/* A claimed or returned event whose turn has to come again. */
void claim_return(InFlightEvent *event);

/* Events that came back and wait to be marked. */
void claim_returned_each(void (*visit)(Oid sink, int64 position));
