/* manual_keys.h: what holds the keys of the rows that a claim reads. */
#pragma once

#include "server/manual/manual_claim.h"

/* The entry of a key; made when it is not there. */
ClaimKey *claim_key_of(Claim *claim, uint64 hash, bool *found);

/* Asks for what the batch has and is not yet known; takes leased events without a key out of the batch. Leases that
 * are over are dropped, if nobody ends them this very moment. */
void claim_ask(Claim *claim);
