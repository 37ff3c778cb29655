/*
 * server.h: first include of every file in the server side. No object with a destructor may be alive across a call
 * that can ereport: longjmp skips destructors. Plain structs and palloc only.
 */
#pragma once

extern "C" {
#include "postgres.h"

#include "fmgr.h"
#include "miscadmin.h"
}

#include "server/base/compat.h"
