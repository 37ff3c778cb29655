/* position.h: the dispatch order. */
#pragma once

#include "server/base/server.h"

/* Draws the next position, after the transaction has got its ID: the worker finds late commits by transaction ID, so
 * a transaction must have its ID before its first position. The POSITION_STEP - 1 positions that follow belong to it.
 */
int64 position_draw(void);

/* Positions in the table are not drawn again, even if the sequence was set back before the server started. The first
 * draw does this too; the worker does it before it reads. In a transaction. */
void position_learn(void);

/* A restored row has kept its position: moves the sequence past it, so that it is not drawn again. */
void position_keep(int64 given);
