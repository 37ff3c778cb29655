/* locked_rows.h: reads rows again that could not be claimed or marked before (dispatch/locked_rows.h). */
#pragma once

#include "server/base/server.h"

extern "C" {
#include "utils/snapshot.h"
}

/* Reads the rows whose pause is over. In SPI. */
void locked_rows_claim(Snapshot snapshot);
