/* large_allocation.c: preloaded into a server, stands for the OOM killer: it ends a worker that asks for a large piece of memory. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <signal.h>
#include <unistd.h>

#include "is_worker.h"

static const size_t LARGE = 12 * 1024 * 1024;

void *malloc(size_t size) {
  static void *(*next)(size_t);

  if (next == NULL)
    next = (void *(*)(size_t))dlsym(RTLD_NEXT, "malloc");
  if (size >= LARGE && is_worker())
    kill(getpid(), SIGKILL);
  return next(size);
}
