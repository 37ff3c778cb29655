/*
 * crash_record.h: the crashes of the workers of each database, in a file, because the server zeroes its shared memory
 * after each. Whatever the cause, the launcher then waits before it starts the next worker. After the third crash in
 * a row a worker is careful: it does one thing after the other, and leaves a mark at each. A sink or event that is
 * found guilty (dispatch/crash_suspects.h) is not tried again.
 */
#pragma once

#include <sys/stat.h>

#include "dispatch/crash_suspects.h"
#include "server/base/clock.h"

using dispatch::Guilt;
using dispatch::Work;

#define OUTBOX_MAX_AT_WORK 8

/* ---- the worker --------------------------------------------------------------------------------------------- */

/* At the start of a worker, before it connects: it runs. Takes over SIGQUIT, which the postmaster sends when another
 * process has crashed, and the fatal signals. Until crash_record_end(), or an exit with code 0 or 1, the end of this
 * process is a crash. */
void crash_record_begin(Oid database, int index);
/* The worker ends, and this is no crash. A signal handler may call it. */
void crash_record_end(void);

/* After the third crash, for some minutes. */
bool crash_is_careful(void);
/* How long an opened sink is at work without an event. */
int crash_trial_ms(void);

/* The main thread works on this, until crash_work_done(). They write a mark while the worker is careful. */
void crash_work_on(const Work *work);
void crash_work_done(void);
/* The work of other threads: `at_work` has OUTBOX_MAX_AT_WORK places. */
void crash_at_work(const Work *at_work);

/* The work has survived its trial. */
void crash_acquit(const Work *work);

/* From the worker's own memory: the guilt of an event, and whether any event is known. */
Guilt crash_guilt_of_event(const Work *event);
bool crash_knows_events(void);

/* ---- any process -------------------------------------------------------------------------------------------- */

/* A guilty object must not be opened or loaded. */
Guilt crash_guilt(const Work *work);

/* Another build of a library is another file, or has another size or time. No clock is compared, which may be set
 * back. A file that is not known (st_ino = 0) is 0. */
uint64 crash_build(const struct stat *library);

/* Forgets a server or a validator. Returns true if it was guilty. */
bool crash_forget(Oid object);

/* ---- the launcher ------------------------------------------------------------------------------------------- */

typedef struct Crashes {
  bool is_new;      /* counted now */
  int count;        /* in a row: less than five minutes passed from each to the next */
  TimestampTz last; /* when the launcher learnt of the last one */
  int64 pause_ms;   /* until the next worker may start */
} Crashes;

/* At the launcher's start. It has a mark like a worker: if that was left as well, all processes have ended at once,
 * as by a power cut, and no crash of a worker is counted. */
void crash_records_begin(void);
/* From the launcher, once after shared memory was made, before any worker runs: calls `visit` for each database with
 * a record. It counts a crash if a worker did not end; a count of 0: none is known. */
void crash_records_count(TimestampTz now, void (*visit)(Oid database, const Crashes *crashes));
/* The database is gone. From the launcher. */
void crash_record_remove(Oid database);
