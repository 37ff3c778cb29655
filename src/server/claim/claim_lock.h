/* claim_lock.h: the second step of a round of claiming: rows are checked or locked, and marks are written. */
#pragma once

/* Drops from the batches the rows that another session has locked or changed, locks the rows that are to be marked,
 * and marks them. In SPI. */
void claim_lock_and_mark(void);
