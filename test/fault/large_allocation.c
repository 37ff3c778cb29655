/* large_allocation.c: preloaded into a server, stands for the OOM killer: it ends a worker that asks for a large piece of memory. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

static const size_t LARGE = 12 * 1024 * 1024;

static int is_worker(void) {
  char title[64] = "";
  const int file = open("/proc/self/cmdline", O_RDONLY | O_CLOEXEC);

  if (file < 0)
    return 0;
  const ssize_t n = read(file, title, sizeof(title) - 1);
  close(file);
  return n > 0 && strstr(title, "outbox worker") != NULL;
}

void *malloc(size_t size) {
  static void *(*next)(size_t);

  if (next == NULL)
    next = (void *(*)(size_t))dlsym(RTLD_NEXT, "malloc");
  if (size >= LARGE && is_worker())
    kill(getpid(), SIGKILL);
  return next(size);
}
