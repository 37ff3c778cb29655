/*
 * clock.c: a wall clock that a test can set, for one server. This library is preloaded and adds the microseconds in
 * the file $RIG_CLOCK to the real clock. The monotonic clock is not changed, as when an administrator or NTP sets
 * the clock of a machine.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <threads.h>
#include <time.h>
#include <unistd.h>

static const int64_t SECOND_NS = 1000000000;
/* A wait for a wall-clock time checks the file at this interval, so that it notices when the clock is set. */
static const int64_t SLICE_NS = 20 * 1000 * 1000;

static const volatile int64_t *offset_us;

__attribute__((constructor)) static void open_clock(void) {
  const char *path = getenv("RIG_CLOCK");
  int file = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;

  if (file < 0)
    return;
  void *memory = mmap(NULL, sizeof(*offset_us), PROT_READ, MAP_SHARED, file, 0);
  if (memory != MAP_FAILED)
    offset_us = memory;
  close(file);
}

static int64_t ns_of(const struct timespec *time) {
  return time->tv_sec * SECOND_NS + time->tv_nsec;
}

static struct timespec time_of(int64_t ns) {
  return (struct timespec){.tv_sec = ns / SECOND_NS, .tv_nsec = ns % SECOND_NS};
}

static int64_t real_ns(void) {
  struct timespec now;

  syscall(SYS_clock_gettime, CLOCK_REALTIME, &now);
  return ns_of(&now);
}

static int64_t wall_ns(void) {
  return real_ns() + (offset_us ? *offset_us * 1000 : 0);
}

int clock_gettime(clockid_t clock, struct timespec *time) {
  static int (*real)(clockid_t, struct timespec *);

  if (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE) {
    *time = time_of(wall_ns());
    return 0;
  }
  if (!real)
    real = (int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime");
  return real(clock, time);
}

int gettimeofday(struct timeval *restrict time, void *restrict zone) {
  int64_t ns = wall_ns();

  (void)zone;
  time->tv_sec = ns / SECOND_NS;
  time->tv_usec = ns % SECOND_NS / 1000;
  return 0;
}

time_t time(time_t *result) {
  time_t now = wall_ns() / SECOND_NS;

  if (result)
    *result = now;
  return now;
}

int timespec_get(struct timespec *time, int base) {
  if (base == TIME_UTC)
    *time = time_of(wall_ns());
  return base == TIME_UTC ? base : 0;
}

/* The kernel waits by its own clock. If the wall clock has not reached the time, the wait ends early, which is
 * allowed. */
static struct timespec slice(const struct timespec *until, int *is_last) {
  int64_t left = ns_of(until) - wall_ns();

  *is_last = left <= SLICE_NS;
  return time_of(real_ns() + (*is_last ? left : SLICE_NS));
}

int pthread_cond_timedwait(pthread_cond_t *restrict condition, pthread_mutex_t *restrict mutex,
                           const struct timespec *restrict until) {
  static int (*real)(pthread_cond_t *, pthread_mutex_t *, const struct timespec *);
  int is_last;

  if (!real) { /* the library has an older version of this function, for other conditions */
    void *found = dlvsym(RTLD_NEXT, "pthread_cond_timedwait", "GLIBC_2.3.2");
    real = (int (*)(pthread_cond_t *, pthread_mutex_t *, const struct timespec *))(
        found ? found : dlsym(RTLD_NEXT, "pthread_cond_timedwait"));
  }
  if (until->tv_sec < SECOND_NS) /* seconds since the machine's start: the condition uses the monotonic clock */
    return real(condition, mutex, until);
  struct timespec part = slice(until, &is_last);
  int result = real(condition, mutex, &part);
  return result == ETIMEDOUT && !is_last ? 0 : result;
}

int cnd_timedwait(cnd_t *restrict condition, mtx_t *restrict mutex, const struct timespec *restrict until) {
  static int (*real)(cnd_t *, mtx_t *, const struct timespec *);
  int is_last;

  if (!real)
    real = (int (*)(cnd_t *, mtx_t *, const struct timespec *))dlsym(RTLD_NEXT, "cnd_timedwait");
  struct timespec part = slice(until, &is_last);
  int result = real(condition, mutex, &part);
  return result == thrd_timedout && !is_last ? thrd_success : result;
}
