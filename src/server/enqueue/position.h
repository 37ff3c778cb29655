/* position.h: the dispatch order. */
#pragma once

#include "server/base/server.h"

/* Draws the next position. Makes sure first that the transaction has its id: the worker bounds late committers by
 * transaction, so a position must never be older than the xid. */
int64 position_draw(void);

/* There is a row with this position: none is drawn at or below it. */
void position_seen(int64 position);

/* Is any position known to have been drawn since the server started? */
bool position_known(void);

/* A row brought its position along (a restore): the sequence must not draw it again. */
void position_keep(int64 given);
