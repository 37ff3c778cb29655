/* busy_rows.h: looks again at rows that could not be taken or marked yet (busy_list.h). */
#pragma once

#include "server/base/server.h"

extern "C" {
#include "utils/snapshot.h"
}

/* Looks again at those whose time has come. In SPI. */
void busy_rows_claim(Snapshot snapshot);

/* After an abort: they are looked at again. */
void busy_rows_give_back(void);
