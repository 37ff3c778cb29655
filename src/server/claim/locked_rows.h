/* locked_rows.h: looks again at rows that could not be claimed or marked yet (dispatch/locked_rows.h). */
#pragma once

#include "server/base/server.h"

extern "C" {
#include "utils/snapshot.h"
}

/* Looks again at those whose time has come. In SPI. */
void locked_rows_claim(Snapshot snapshot);
