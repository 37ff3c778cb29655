/*
 * disk.c: a disk that forgets, for one server. This library is preloaded and keeps, for each file of pg_wal, what was
 * there before the writes that no fsync has followed, so that a test can take those writes back after it has killed
 * the server. (SIGKILL alone loses nothing that was written: it is in the kernel's page cache.) It also counts writes
 * and syncs, and fails one of them on demand.
 *
 * The contents are kept in files of the folder $RIG_DISK, one per inode (WAL segments are renamed). Calls for one
 * file are serialized by a lock on that file, which ends with the process that holds it.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

enum { OTHER, WAL, HEAP, KINDS = 2, MAX_FD = 65536 };
enum { WRITE, SYNC, CALLS };

/* The file "control" in $RIG_DISK; disk.py reads and writes it. */
typedef struct Control {
  uint64_t count[KINDS][CALLS];   /* of WAL and of heap, since the file was made */
  uint64_t fail_at[KINDS][CALLS]; /* the call with this number fails; 0 = none */
  uint64_t error;                 /* its errno */
  uint64_t failed;                /* how many calls have failed */
} Control;

/* A write of `length` bytes at `offset`, before which the file had `size` bytes. `kept` bytes follow: what was there.
 */
typedef struct Record {
  uint64_t offset, length, size, kept;
} Record;

static char folder[PATH_MAX];
static Control *control;
static struct {
  unsigned char kind;
  ino_t inode;
} files[MAX_FD];

#define REAL(name)                                                                                                   \
  static __typeof__(name) *real;                                                                                     \
  if (!real)                                                                                                         \
  real = (__typeof__(name) *)dlsym(RTLD_NEXT, #name)

__attribute__((constructor)) static void open_control(void) {
  const char *given = getenv("RIG_DISK");
  char path[PATH_MAX + 10];

  if (!given)
    return;
  snprintf(folder, sizeof folder, "%s", given); /* the postmaster overwrites its environment with its title */
  snprintf(path, sizeof path, "%s/control", folder);
  int file = open(path, O_RDWR | O_CLOEXEC);
  void *memory = file < 0 ? MAP_FAILED : mmap(NULL, sizeof *control, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  if (memory != MAP_FAILED)
    control = memory;
  if (file >= 0)
    close(file);
}

/* The server's working directory is its data directory. */
static int kind_of(const char *path) {
  if (strncmp(path, "pg_wal/", 7) == 0 && strchr(path + 7, '/') == NULL)
    return WAL;
  return strncmp(path, "base/", 5) == 0 ? HEAP : OTHER;
}

static void forget(int fd);

static void opened(int fd, const char *path, int flags) {
  struct stat found;

  if (!control || fd < 0 || fd >= MAX_FD)
    return;
  files[fd].kind = kind_of(path);
  if (files[fd].kind == OTHER)
    return;
  if (fstat(fd, &found) != 0 || !S_ISREG(found.st_mode))
    files[fd].kind = OTHER;
  files[fd].inode = found.st_ino;
  if (files[fd].kind == WAL && (flags & O_CREAT) && found.st_size == 0)
    forget(fd); /* a new file, which may have the inode of a removed one */
}

static int kind(int fd) {
  return control && fd >= 0 && fd < MAX_FD ? files[fd].kind : OTHER;
}

static int open_file(const char *path, int flags, mode_t mode) {
  REAL(open);
  int fd = real(path, flags, mode);
  int error = errno;

  opened(fd, path, flags);
  errno = error;
  return fd;
}

#define OPEN(name)                                                                                                   \
  int name(const char *path, int flags, ...) {                                                                       \
    va_list arguments;                                                                                               \
    va_start(arguments, flags);                                                                                      \
    mode_t mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(arguments, mode_t) : 0;                                     \
    va_end(arguments);                                                                                               \
    return open_file(path, flags, mode);                                                                             \
  }
OPEN(open)
OPEN(open64)

int close(int fd) {
  REAL(close);
  if (fd >= 0 && fd < MAX_FD)
    files[fd].kind = OTHER;
  return real(fd);
}

/* ---- counting and failing ----------------------------------------------------------------------------------------
 */

/* Should this call fail? Sets errno then. */
static int fails(int fd, int call) {
  const int k = kind(fd);

  if (k == OTHER)
    return 0;
  const uint64_t number = __atomic_add_fetch(&control->count[k - 1][call], 1, __ATOMIC_SEQ_CST);
  if (number != __atomic_load_n(&control->fail_at[k - 1][call], __ATOMIC_SEQ_CST))
    return 0;
  __atomic_add_fetch(&control->failed, 1, __ATOMIC_SEQ_CST);
  errno = (int)control->error;
  return 1;
}

/* ---- what was there before ---------------------------------------------------------------------------------------
 */

/* Opens and locks the file that keeps the former contents of this WAL file. */
static int lock_kept(int fd) {
  char path[PATH_MAX + 30];
  static __typeof__(open) *real_open;

  if (!real_open)
    real_open = (__typeof__(open) *)dlsym(RTLD_NEXT, "open");
  snprintf(path, sizeof path, "%s/%llu", folder, (unsigned long long)files[fd].inode);
  int kept = real_open(path, O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
  if (kept < 0) {
    perror("disk.so: no file for what was written");
    abort();
  }
  while (flock(kept, LOCK_EX) != 0 && errno == EINTR)
    ;
  return kept;
}

static void unlock_kept(int kept) {
  REAL(close);
  int error = errno;

  real(kept);
  errno = error;
}

static void clear_kept(int kept) {
  REAL(ftruncate);
  if (real(kept, 0) != 0)
    abort();
}

static void forget(int fd) {
  int kept = lock_kept(fd);

  clear_kept(kept);
  unlock_kept(kept);
}

static void keep(int kept, int fd, uint64_t offset, uint64_t length) {
  REAL(write);
  struct stat found;
  static char buffer[sizeof(Record) + (1 << 20)]; /* one thread of a server process writes WAL */

  if (fstat(fd, &found) != 0)
    abort();
  const uint64_t size = (uint64_t)found.st_size;
  for (uint64_t done = 0; done < length;) {
    const uint64_t part = length - done < 1 << 20 ? length - done : 1 << 20, from = offset + done;
    Record record = {from, part, size, from >= size ? 0 : size - from < part ? size - from : part};
    if (record.kept && pread(fd, buffer + sizeof record, record.kept, (off_t)from) != (ssize_t)record.kept)
      abort();
    memcpy(buffer, &record, sizeof record);
    if (real(kept, buffer, sizeof record + record.kept) != (ssize_t)(sizeof record + record.kept))
      abort();
    done += part;
  }
}

/* Begins a write to a WAL file. Returns what end_write() gets: -1 when nothing need be kept. */
static int begin_write(int fd, uint64_t offset, uint64_t length) {
  if (kind(fd) != WAL || (fcntl(fd, F_GETFL) & (O_DSYNC | O_SYNC)) != 0)
    return -1;
  int kept = lock_kept(fd);
  keep(kept, fd, offset, length);
  return kept;
}

static void end_write(int kept) {
  if (kept >= 0)
    unlock_kept(kept);
}

static uint64_t length_of(const struct iovec *parts, int n) {
  uint64_t length = 0;

  for (int i = 0; i < n; i++)
    length += parts[i].iov_len;
  return length;
}

#define WRITE_CALL(name, parameters, arguments, offset, length)                                                      \
  ssize_t name parameters {                                                                                          \
    REAL(name);                                                                                                      \
    if (fails(fd, WRITE))                                                                                            \
      return -1;                                                                                                     \
    const int kept = begin_write(fd, (uint64_t)(offset), length);                                                    \
    ssize_t written = real arguments;                                                                                \
    end_write(kept);                                                                                                 \
    return written;                                                                                                  \
  }
WRITE_CALL(pwrite, (int fd, const void *data, size_t n, off_t at), (fd, data, n, at), at, n)
WRITE_CALL(pwrite64, (int fd, const void *data, size_t n, off64_t at), (fd, data, n, at), at, n)
WRITE_CALL(pwritev, (int fd, const struct iovec *parts, int n, off_t at), (fd, parts, n, at), at, length_of(parts, n))
WRITE_CALL(pwritev64, (int fd, const struct iovec *parts, int n, off64_t at), (fd, parts, n, at), at,
           length_of(parts, n))
WRITE_CALL(write, (int fd, const void *data, size_t n), (fd, data, n), kind(fd) == WAL ? lseek(fd, 0, SEEK_CUR) : 0,
           n)

#define TRUNCATE_CALL(name, type)                                                                                    \
  int name(int fd, type size) {                                                                                      \
    REAL(name);                                                                                                      \
    struct stat found;                                                                                               \
    int kept = -1;                                                                                                   \
    if (kind(fd) == WAL && fstat(fd, &found) == 0 && size < found.st_size)                                           \
      kept = begin_write(fd, (uint64_t)size, (uint64_t)(found.st_size - size));                                      \
    int result = real(fd, size);                                                                                     \
    end_write(kept);                                                                                                 \
    return result;                                                                                                   \
  }
TRUNCATE_CALL(ftruncate, off_t)
TRUNCATE_CALL(ftruncate64, off64_t)

/* What was written before is on the disk when the call returns. */
#define SYNC_CALL(name)                                                                                              \
  int name(int fd) {                                                                                                 \
    REAL(name);                                                                                                      \
    if (fails(fd, SYNC))                                                                                             \
      return -1;                                                                                                     \
    if (kind(fd) != WAL)                                                                                             \
      return real(fd);                                                                                               \
    const int kept = lock_kept(fd);                                                                                  \
    int result = real(fd);                                                                                           \
    if (result == 0)                                                                                                 \
      clear_kept(kept);                                                                                              \
    unlock_kept(kept);                                                                                               \
    return result;                                                                                                   \
  }
SYNC_CALL(fsync)
SYNC_CALL(fdatasync)
