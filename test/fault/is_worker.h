/* is_worker.h: whether this process is a worker, for libraries that are preloaded into a server. */
#pragma once
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

static int is_worker(void) {
  char title[64] = "";
  const int file = open("/proc/self/cmdline", O_RDONLY | O_CLOEXEC);

  if (file < 0)
    return 0;
  const ssize_t n = read(file, title, sizeof(title) - 1);
  close(file);
  return n > 0 && strstr(title, "outbox worker") != NULL;
}
