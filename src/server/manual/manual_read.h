/* manual_read.h: the events of a claim, as its caller gets them. */
#pragma once

#include "server/manual/manual_claim.h"

/* What is leased, but for what cannot be read: that is given back. */
void claim_hand_out(Claim *claim, ReturnSetInfo *result);
