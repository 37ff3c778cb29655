/* failing_allocation.c: preloaded into a server: operator new fails once in a worker, on its main thread when there is the file that FAIL_MAIN
 * names, or on another thread when there is that of FAIL_THREAD. The file is removed then. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "is_worker.h"

static int is_operator_new(const void *caller) {
  Dl_info info;
  return dladdr(caller, &info) && info.dli_fname && strstr(info.dli_fname, "libstdc++");
}

void *malloc(size_t size) {
  static void *(*next)(size_t);
  static __thread int asks;

  if (next == NULL)
    next = (void *(*)(size_t))dlsym(RTLD_NEXT, "malloc");
  if (asks)
    return next(size);
  asks = 1;
  const char *file = getenv(syscall(SYS_gettid) == getpid() ? "FAIL_MAIN" : "FAIL_THREAD");
  const int fails = file && access(file, F_OK) == 0 && is_operator_new(__builtin_return_address(0)) && is_worker() && unlink(file) == 0;
  asks = 0;
  return fails ? NULL : next(size);
}
