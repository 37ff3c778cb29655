/*
 * crash_record.cpp: one file per database in pg_stat/, of which PostgreSQL removes only files of its own. The file
 * need not reach the disk: it must survive the crash of a process, not that of the machine. It has a head, which is
 * changed under a lock, and a mark for each worker, which that worker alone writes. When one of several workers
 * crashes, the postmaster ends the others by SIGQUIT, at which they take their marks away: so only the one that
 * crashed is counted, and only its work is blamed.
 *
 * A start and an end of a worker cost a write each; a careful worker writes one for each thing that it does. Without
 * space on the disk there is no mark, and the crash is not counted.
 */
#include "server/storage/crash_record.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stddef.h>
#include <sys/file.h>
#include <unistd.h>

extern "C" {
#include "common/file_perm.h"
#include "foreign/foreign.h"
#include "libpq/pqsignal.h"
#include "postmaster/interrupt.h"
#include "storage/fd.h"
#include "storage/ipc.h"
}

#include "server/base/sql_function.h"
#include "server/shmem/worker_slots.h"

using dispatch::CrashEnd;
using dispatch::CrashSuspects;

/* After so long without another crash the count begins anew. */
static const int64 CRASHES_END_MS = 5 * 60 * 1000;
static const int64 FIRST_PAUSE_MS = 1000;
static const int64 LAST_PAUSE_MS = 60000;
/* A worker is careful from this crash on: for a minute after this one, for one more after each that follows. */
static const int CAREFUL_FROM = 3;
static const int64 CAREFUL_MS = 60000;
static const char FOLDER[] = "pg_stat", NAME[] = "outbox_crashes.";
static const uint32 FORMAT = 0x6f627832;

typedef struct Head {
  uint32 format; /* of another one, all is zero */
  int32 count;
  TimestampTz last;
  CrashSuspects suspects;
} Head;

typedef struct Mark {
  int32 runs;                       /* 1 from the start of the worker to its end */
  CrashEnd end;                     /* how it has crashed */
  Work main;                        /* what the main thread works on … */
  Work at_work[OUTBOX_MAX_AT_WORK]; /* … and what other threads do */
} Mark;

static int own_file = -1; /* of this worker's database; of none in the launcher */
static off_t own_mark;
static pthread_t main_thread;
static bool careful = false;
static bool is_marked = false; /* the main thread's work */
static Moment careful_until;
static Head own_head; /* as it was when it was last read */
static bool any_event_known = false;
static bool all_had_ended = false;

static void name_file(char path[MAXPGPATH], Oid database) {
  snprintf(path, MAXPGPATH, "%s/%s%u", FOLDER, NAME, database);
}

static int open_record(Oid database) {
  char path[MAXPGPATH];

  name_file(path, database);
  return open(path, O_RDWR | O_CLOEXEC);
}

static off_t mark_at(int index) {
  return (off_t)sizeof(Head) + (off_t)index * (off_t)sizeof(Mark);
}

/* Zero where the file ends, or is of another format. */
static void read_head(int file, Head *head) {
  *head = {};
  if (pread(file, head, sizeof(*head), 0) != (ssize_t)sizeof(*head) || head->format != FORMAT)
    *head = {};
}

static void write_head(int file, Head *head) {
  head->format = FORMAT;
  (void)!pwrite(file, head, sizeof(*head), 0);
}

/* The clock may have been set: a crash of the future is one of now. */
static int64 milliseconds_since(TimestampTz then, TimestampTz now) {
  return then > now ? 0 : (now - then) / 1000;
}

static int64 pause_after(int count) {
  return count == 0 ? 0 : Min(FIRST_PAUSE_MS << Min(count - 1, 6), LAST_PAUSE_MS);
}

/* ---- what is known ------------------------------------------------------------------------------------------ */

static void keep_head(const Head *head) {
  own_head = *head;
  any_event_known = head->suspects.knows_events();
}

Guilt crash_guilt(const Work *work) {
  const int file = own_file >= 0 ? own_file : open_record(MyDatabaseId);
  Head head;

  if (file < 0)
    return Guilt::NONE;
  read_head(file, &head);
  if (file == own_file)
    keep_head(&head);
  else
    close(file);
  return head.suspects.of(*work);
}

bool crash_knows_events(void) {
  return any_event_known;
}

Guilt crash_guilt_of_event(const Work *event) {
  return likely(!any_event_known) ? Guilt::NONE : own_head.suspects.of(*event);
}

void crash_acquit(const Work *work) {
  Head head;

  if (own_file < 0)
    return;
  (void)flock(own_file, LOCK_EX);
  read_head(own_file, &head);
  head.suspects.acquit(*work);
  write_head(own_file, &head);
  (void)flock(own_file, LOCK_UN);
  keep_head(&head);
}

bool crash_forget(Oid object) {
  const int file = open_record(MyDatabaseId);
  Head head;

  if (file < 0)
    return false;
  (void)flock(file, LOCK_EX);
  read_head(file, &head);
  const bool was_guilty = head.suspects.forget(object);
  if (head.format == FORMAT)
    write_head(file, &head);
  close(file); /* unlocks it */
  if (own_file >= 0)
    keep_head(&head);
  return was_guilty;
}

uint64 crash_build(const struct stat *library) {
  if (library == NULL || library->st_ino == 0)
    return 0;
  uint64 build = (uint64)library->st_dev;
  const uint64 parts[] = {(uint64)library->st_ino, (uint64)library->st_size, (uint64)library->st_mtim.tv_sec,
                          (uint64)library->st_mtim.tv_nsec};
  for (const uint64 part : parts)
    build = build * UINT64CONST(0x9E3779B97F4A7C15) + part;
  return Max(build, 1);
}

/* The guilt of a server and of its kind. */
SQL_FUNCTION(outbox_forget_crashes) {
  const Oid server = PG_GETARG_OID(0);
  const Oid validator = GetForeignDataWrapper(GetForeignServer(server)->fdwid)->fdwvalidator;
  const bool kind_was_guilty = OidIsValid(validator) && crash_forget(validator);

  PG_RETURN_BOOL(crash_forget(server) || kind_was_guilty);
}

/* ---- the end of a worker ------------------------------------------------------------------------------------ */

static void write_part(const void *part, size_t offset, size_t size) {
  if (own_file >= 0)
    (void)!pwrite(own_file, part, size, own_mark + (off_t)offset);
}

static void write_end(CrashEnd end) {
  write_part(&end, offsetof(Mark, end), sizeof(end));
}

void crash_record_end(void) {
  const int32 runs = 0;

  write_part(&runs, offsetof(Mark, runs), sizeof(runs));
}

static void quit(SIGNAL_ARGS) {
  crash_record_end();
  SignalHandlerForCrashExit(OUTBOX_SIGNAL_ARGUMENTS);
}

/* The signal then ends the process as if there were no handler: the faulty instruction runs again, and a signal that
 * was sent is raised again. */
static void crash(int signal_number, siginfo_t *info, void *) {
  const bool was_sent = info->si_code <= 0;

  if (was_sent && info->si_pid != getpid())
    write_end(CrashEnd::OUTSIDE);
  else
    write_end(pthread_equal(pthread_self(), main_thread) ? CrashEnd::MAIN_THREAD : CrashEnd::OTHER_THREAD);
  if (was_sent)
    raise(signal_number);
}

/* Leaves a handler that a library or a sanitizer has. */
static void handle_fatal_signals(void) {
  struct sigaction action = {}, before;

  main_thread = pthread_self();
  action.sa_sigaction = crash;
  action.sa_flags = SA_SIGINFO | SA_RESETHAND;
  sigemptyset(&action.sa_mask);
  for (const int number : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT})
    if (sigaction(number, NULL, &before) == 0 && !(before.sa_flags & SA_SIGINFO) && before.sa_handler == SIG_DFL)
      sigaction(number, &action, NULL);
}

/* Does another worker of the database run, or is a crash remembered? */
static bool is_needed(int file) {
  Head head;
  Mark mark;

  for (int index = 0; index < OUTBOX_MAX_WORKERS; index++)
    if (pread(file, &mark, sizeof(mark), mark_at(index)) == (ssize_t)sizeof(mark) && mark.runs != 0)
      return true;
  read_head(file, &head);
  return head.suspects.knows_guilty_object() ||
         (head.count > 0 && milliseconds_since(head.last, GetCurrentTimestamp()) <= CRASHES_END_MS);
}

/* The postmaster takes another code for a crash; it is -1 when a library has called exit(). A record that says
 * nothing is removed, so that none is left behind when the server is started without the library. If a worker of the
 * same database starts at this moment, its crash may not be counted. */
static void end_at_exit(int code, Datum database) {
  if (code != 0 && code != 1) {
    write_end(pthread_equal(pthread_self(), main_thread) ? CrashEnd::MAIN_THREAD : CrashEnd::OTHER_THREAD);
    return;
  }
  crash_record_end();
  if (own_file >= 0 && !is_needed(own_file))
    crash_record_remove(DatumGetObjectId(database));
}

/* ---- the worker --------------------------------------------------------------------------------------------- */

static void decide_careful(void) {
  const int64 length =
      Min(pause_after(own_head.count) + CAREFUL_MS * (own_head.count - CAREFUL_FROM + 1), CRASHES_END_MS);
  const int64 since = milliseconds_since(own_head.last, GetCurrentTimestamp());

  careful = own_head.count >= CAREFUL_FROM && since < length;
  if (!careful)
    return;
  careful_until = moment_after(moment_now(), length - since);
  ereport(LOG,
          (errmsg("outbox worker is careful after crashes of its database's workers, in a row: %d", own_head.count),
           errdetail("It opens sinks and hands events over one after the other, and finds out which of them "
                     "crashes it.")));
}

void crash_record_begin(Oid database, int index) {
  Assert(own_file < 0);
  char path[MAXPGPATH];
  const Mark mark = {1, CrashEnd::UNKNOWN, {}, {}};
  Head head;

  name_file(path, database);
  ReserveExternalFD();
  own_file = open(path, O_RDWR | O_CREAT | O_CLOEXEC, pg_file_create_mode);
  if (own_file < 0)
    return;
  own_mark = mark_at(index);
  (void)flock(own_file, LOCK_EX);
  read_head(own_file, &head);
  if (head.format != FORMAT)
    write_head(own_file, &head);
  (void)flock(own_file, LOCK_UN);
  keep_head(&head);
  pqsignal(SIGQUIT, quit);
  handle_fatal_signals();
  write_part(&mark, 0, sizeof(mark));
  on_proc_exit(end_at_exit, ObjectIdGetDatum(database));
  decide_careful();
}

bool crash_is_careful(void) {
  if (unlikely(careful) && careful_until <= moment_now()) {
    careful = false;
    ereport(LOG, (errmsg("outbox worker is no longer careful")));
  }
  return careful;
}

int crash_trial_ms(void) {
  return own_head.suspects.trial_ms();
}

void crash_work_on(const Work *work) {
  if (likely(!careful))
    return;
  write_part(work, offsetof(Mark, main), sizeof(*work));
  is_marked = true;
}

void crash_work_done(void) {
  const Work none = {};

  if (is_marked)
    write_part(&none, offsetof(Mark, main), sizeof(none));
  is_marked = false;
}

void crash_at_work(const Work *at_work) {
  write_part(at_work, offsetof(Mark, at_work), sizeof(*at_work) * OUTBOX_MAX_AT_WORK);
}

/* ---- the launcher ------------------------------------------------------------------------------------------- */

/* Has a worker not ended? Takes the marks away, and blames what was at work, unless `suspects` is NULL. */
static bool take_marks(int file, CrashSuspects *suspects) {
  const int32 ended = 0;
  bool left = false;

  for (int index = 0; index < OUTBOX_MAX_WORKERS; index++) {
    Mark mark = {};
    if (pread(file, &mark, sizeof(mark), mark_at(index)) != (ssize_t)sizeof(mark))
      break;
    if (mark.runs == 0)
      continue;
    left = true;
    if (suspects)
      suspects->blame(mark.end, mark.main, mark.at_work);
    (void)!pwrite(file, &ended, sizeof(ended), mark_at(index));
  }
  return left;
}

void crash_records_begin(void) {
  const int file = open_record(InvalidOid);

  if (file >= 0) {
    all_had_ended = take_marks(file, NULL);
    close(file);
  }
  crash_record_begin(InvalidOid, 0);
}

static Crashes count(int file, TimestampTz now) {
  Head head;

  (void)flock(file, LOCK_EX);
  read_head(file, &head);
  if (milliseconds_since(head.last, now) > CRASHES_END_MS) {
    head.count = 0;
    head.suspects.acquit_all();
  }
  const bool is_ours = head.format == FORMAT && !all_had_ended;
  const bool crashed = take_marks(file, is_ours ? &head.suspects : NULL) && is_ours;
  if (crashed) {
    head.count++;
    head.last = now;
    write_head(file, &head);
  }
  return {crashed, head.count, head.last, Max(pause_after(head.count) - milliseconds_since(head.last, now), 0)};
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
