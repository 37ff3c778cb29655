/* position.h: the dispatch order. */
#pragma once

#include "server/base/server.h"

/* Draws the next position, after the transaction has got its ID: the worker finds late commits by transaction ID, so
 * a transaction must have its ID before its first position. The POSITION_STEP - 1 positions that follow belong to it.
 */
int64 position_draw(void);

/* A row with this position exists: positions up to it are not drawn again. */
void position_seen(int64 position);

/* Was a position drawn, or seen by position_seen(), since the server started? */
bool position_known(void);

/* A restored row has kept its position: moves the sequence past it, so that it is not drawn again. */
void position_keep(int64 given);
