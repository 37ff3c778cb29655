/*
 * fault_point.h: the places at which a test build (`make test-faults`) kills the process, raises an error, or waits.
 * The functions are in test/fault_points/fault_point.cpp, so that the library contains no code for tests.
 */
#pragma once

#include "dispatch/fault_point.h"

#ifdef OUTBOX_FAULT_POINTS
void outbox_fault_point(const char *name);
void outbox_signal_point(const char *name);
/* Where PostgreSQL could raise an error. */
#define OUTBOX_FAULT_POINT(name) outbox_fault_point(name)
/* Where no error can be raised: a cancel or a SIGTERM arrives here, and has its effect at the next check for one. */
#define OUTBOX_SIGNAL_POINT(name) outbox_signal_point(name)
#else
#define OUTBOX_FAULT_POINT(name) ((void)0)
#define OUTBOX_SIGNAL_POINT(name) ((void)0)
#endif
