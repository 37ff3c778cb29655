/*
 * crash_record.h: the crashes of the workers of each database, in a file, because the server zeroes its shared memory
 * after each. Whatever the cause, the launcher then waits before it starts the next worker.
 */
#pragma once

#include "server/base/clock.h"

/* At the start of a worker, before it connects: it runs. Takes over SIGQUIT, which the postmaster sends when another
 * process has crashed. Until crash_record_end(), or an exit with code 0 or 1, the end of this process is a crash. */
void crash_record_begin(Oid database, int index);
/* The worker ends, and this is no crash. A signal handler may call it. */
void crash_record_end(void);

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
