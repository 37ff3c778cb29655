/*
 * crash_mark.cpp: a mark is a file in pg_stat/ with the number of calls that have not ended and the identity of the
 * library. It need not reach the disk: it must survive the crash of a process, not that of the machine. Shared memory
 * and rows of the transaction would not survive. Without space on the disk there is no mark, and the code is called
 * all the same.
 */
#include "server/catalog/crash_mark.h"

#include <fcntl.h>
#include <unistd.h>

extern "C" {
#include "common/file_perm.h"
#include "foreign/foreign.h"
#include "miscadmin.h"
}

#include "server/base/sql_function.h"
#include "server/shmem/shared_state.h"

static const int MOST_CRASHES = 2;

static int own_index = -1; /* of this worker; sessions have none, and read the first worker's marks */

static void name_mark(char path[MAXPGPATH], Oid object, int index) {
  snprintf(path, MAXPGPATH, "pg_stat/outbox_calling.%u.%u.%d", MyDatabaseId, object, index);
}

typedef struct Mark {
  int calls; /* that have not ended */
  struct stat library;
} Mark;

bool is_same_file(const struct stat *a, const struct stat *b) {
  return a->st_dev == b->st_dev && a->st_ino == b->st_ino && a->st_size == b->st_size &&
         a->st_mtim.tv_sec == b->st_mtim.tv_sec && a->st_mtim.tv_nsec == b->st_mtim.tv_nsec;
}

/* How many calls have not ended. A mark of another file than `library` is of another build. */
static int read_mark(const char *path, const struct stat *library) {
  Mark mark = {};
  const int fd = open(path, O_RDONLY | O_CLOEXEC);

  if (fd < 0)
    return 0;
  if (read(fd, &mark, sizeof(mark)) != sizeof(mark) ||
      (library->st_ino != 0 && !is_same_file(&mark.library, library)))
    mark.calls = 0;
  close(fd);
  return mark.calls;
}

static void write_mark(const char *path, int calls, const struct stat *library) {
  const Mark mark = {calls, *library};
  const int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, pg_file_create_mode);

  if (fd < 0)
    return;
  (void)!write(fd, &mark, sizeof(mark));
  close(fd);
}

void crash_marks_init(int worker_index) {
  own_index = worker_index;
}

bool crash_mark_leave(Oid object, const struct stat *library) {
  char path[MAXPGPATH];

  name_mark(path, object, Max(own_index, 0));
  const int calls = read_mark(path, library);
  if (calls >= MOST_CRASHES)
    return false;
  if (own_index >= 0)
    write_mark(path, calls + 1, library);
  return true;
}

/* The doctor and docs/new-sink.md know this message. */
void crash_mark_error(ob_error *error) {
  memset(error, 0, sizeof(*error));
  error->kind = OB_INTERNAL;
  strlcpy(error->message, "crashed twice while it was opened", sizeof(error->message));
  strlcpy(error->detail, "Each crash of a worker restarts the server.", sizeof(error->detail));
  strlcpy(error->hint,
          "Install a build of its kind that does not crash: the sink is then opened by itself. To open it without "
          "one: SELECT outbox.resume('name of the sink');",
          sizeof(error->hint));
}

void crash_mark_remove(Oid object) {
  char path[MAXPGPATH];

  if (own_index < 0)
    return;
  name_mark(path, object, own_index);
  (void)unlink(path);
}

bool crash_marks_forget(Oid object) {
  const struct stat any = {};
  bool had_crashed = false;

  for (int index = 0; index < OUTBOX_MAX_WORKERS; index++) {
    char path[MAXPGPATH];
    name_mark(path, object, index);
    had_crashed |= read_mark(path, &any) >= MOST_CRASHES;
    (void)unlink(path);
  }
  return had_crashed;
}

/* The marks of a server and of its kind. */
SQL_FUNCTION(outbox_forget_crashes) {
  const Oid server = PG_GETARG_OID(0);
  const Oid validator = GetForeignDataWrapper(GetForeignServer(server)->fdwid)->fdwvalidator;
  const bool kind_crashed = OidIsValid(validator) && crash_marks_forget(validator);

  PG_RETURN_BOOL(crash_marks_forget(server) || kind_crashed);
}
