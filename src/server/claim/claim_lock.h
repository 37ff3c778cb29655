/* claim_lock.h: the second step of a claim. */
#pragma once

/* Locks what was taken and what is to be marked; drops from the batches what could not be locked, and marks. */
void claim_lock_and_mark(void);
