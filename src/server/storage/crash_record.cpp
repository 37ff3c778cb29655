/*
 * crash_record.cpp: one file per database in pg_stat/, of which PostgreSQL removes only files of its own. The file
 * need not reach the disk: it must survive the crash of a process, not that of the machine. It has a head, which the
 * launcher writes, and a mark for each worker, which that worker alone writes. A start and an end of a worker cost a
 * write each. Without space on the disk there is no mark, and the crash is not counted.
 */
#include "server/storage/crash_record.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

extern "C" {
#include "common/file_perm.h"
#include "libpq/pqsignal.h"
#include "postmaster/interrupt.h"
#include "storage/fd.h"
#include "storage/ipc.h"
}

#include "server/shmem/worker_slots.h"

/* After so long without another crash the count begins anew. */
static const int64 CRASHES_END_MS = 5 * 60 * 1000;
static const int64 FIRST_PAUSE_MS = 1000;
static const int64 LAST_PAUSE_MS = 60000;
static const char FOLDER[] = "pg_stat", NAME[] = "outbox_crashes.";
static const uint32 FORMAT = 0x6f627831;

typedef struct Head {
  uint32 format; /* of another one, all is zero */
  int32 count;
  TimestampTz last;
} Head;

typedef struct Mark {
  int32 runs; /* 1 from the start of the worker to its end */
} Mark;

static int own_file = -1; /* of this worker's database; of none in the launcher */
static off_t own_mark;
static bool all_had_ended = false;

static void name_file(char path[MAXPGPATH], Oid database) {
  snprintf(path, MAXPGPATH, "%s/%s%u", FOLDER, NAME, database);
}

static off_t mark_at(int index) {
  return (off_t)sizeof(Head) + (off_t)index * (off_t)sizeof(Mark);
}

/* Zero where the file ends, or is of another format. */
static void read_head(int file, Head *head) {
  memset(head, 0, sizeof(*head));
  if (pread(file, head, sizeof(*head), 0) != (ssize_t)sizeof(*head) || head->format != FORMAT)
    memset(head, 0, sizeof(*head));
}

static void write_head(int file, Head *head) {
  head->format = FORMAT;
  (void)!pwrite(file, head, sizeof(*head), 0);
}

/* The clock may have been set: a crash of the future is one of now. */
static int64 milliseconds_since(TimestampTz then, TimestampTz now) {
  return then > now ? 0 : (now - then) / 1000;
}

/* ---- the worker --------------------------------------------------------------------------------------------- */

static void write_runs(int32 runs) {
  const Mark mark = {runs};

  if (own_file >= 0)
    (void)!pwrite(own_file, &mark, sizeof(mark), own_mark);
}

void crash_record_end(void) {
  write_runs(0);
}

static void quit(SIGNAL_ARGS) {
  crash_record_end();
  SignalHandlerForCrashExit(OUTBOX_SIGNAL_ARGUMENTS);
}

/* Does another worker of the database run, or is a crash remembered? */
static bool is_needed(int file) {
  Head head;
  Mark mark;

  for (int index = 0; index < OUTBOX_MAX_WORKERS; index++)
    if (pread(file, &mark, sizeof(mark), mark_at(index)) == (ssize_t)sizeof(mark) && mark.runs != 0)
      return true;
  read_head(file, &head);
  return head.count > 0 && milliseconds_since(head.last, GetCurrentTimestamp()) <= CRASHES_END_MS;
}

/* The postmaster takes another code for a crash. A record that says nothing is removed, so that none is left behind
 * when the server is started without the library. If a worker of the same database starts at this moment, its crash
 * may not be counted. */
static void end_at_exit(int code, Datum database) {
  if (code != 0 && code != 1)
    return;
  crash_record_end();
  if (own_file >= 0 && !is_needed(own_file))
    crash_record_remove(DatumGetObjectId(database));
}

void crash_record_begin(Oid database, int index) {
  Assert(own_file < 0);
  char path[MAXPGPATH];
  Head head;

  name_file(path, database);
  ReserveExternalFD();
  own_file = open(path, O_RDWR | O_CREAT | O_CLOEXEC, pg_file_create_mode);
  if (own_file < 0)
    return;
  own_mark = mark_at(index);
  read_head(own_file, &head);
  if (head.format != FORMAT)
    write_head(own_file, &head);
  pqsignal(SIGQUIT, quit);
  write_runs(1);
  on_proc_exit(end_at_exit, ObjectIdGetDatum(database));
}

/* ---- the launcher ------------------------------------------------------------------------------------------- */

static int open_record(Oid database) {
  char path[MAXPGPATH];

  name_file(path, database);
  return open(path, O_RDWR | O_CLOEXEC);
}

/* Has a worker not ended? Takes the marks away. */
static bool take_marks(int file) {
  bool left = false;

  for (int index = 0; index < OUTBOX_MAX_WORKERS; index++) {
    Mark mark = {};
    if (pread(file, &mark, sizeof(mark), mark_at(index)) != (ssize_t)sizeof(mark))
      break;
    if (mark.runs == 0)
      continue;
    left = true;
    mark.runs = 0;
    (void)!pwrite(file, &mark, sizeof(mark), mark_at(index));
  }
  return left;
}

void crash_records_begin(void) {
  const int file = open_record(InvalidOid);

  if (file >= 0) {
    all_had_ended = take_marks(file);
    close(file);
  }
  crash_record_begin(InvalidOid, 0);
}

static Crashes count(int file, TimestampTz now) {
  Head head;

  read_head(file, &head);
  const bool crashed = take_marks(file) && !all_had_ended && head.format == FORMAT;
  if (milliseconds_since(head.last, now) > CRASHES_END_MS)
    head.count = 0;
  if (crashed) {
    head.count++;
    head.last = now;
    write_head(file, &head);
  }
  const int64 pause = head.count == 0 ? 0 : Min(FIRST_PAUSE_MS << Min(head.count - 1, 6), LAST_PAUSE_MS);
  return {crashed, head.count, head.last, Max(pause - milliseconds_since(head.last, now), 0)};
}

void crash_records_count(TimestampTz now, void (*visit)(Oid database, const Crashes *crashes)) {
  DIR *folder = AllocateDir(FOLDER);
  struct dirent *entry;

  while ((entry = ReadDirExtended(folder, FOLDER, LOG)) != NULL) {
    const size_t length = strlen(NAME);
    if (strncmp(entry->d_name, NAME, length) != 0)
      continue;
    const Oid database = (Oid)strtoul(entry->d_name + length, NULL, 10);
    const int file = OidIsValid(database) ? open_record(database) : -1;
    if (file < 0)
      continue;
    const Crashes crashes = count(file, now);
    close(file);
    visit(database, &crashes);
  }
  FreeDir(folder);
}

void crash_record_remove(Oid database) {
  char path[MAXPGPATH];

  name_file(path, database);
  (void)unlink(path);
}
