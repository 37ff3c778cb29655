/* Each fsync and fdatasync takes as many milliseconds longer as the file SLOW_SYNC says. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

static void wait_a_while(void) {
  long ms = 0;
  FILE *file = fopen(getenv("SLOW_SYNC"), "r");
  if (!file)
    return;
  if (fscanf(file, "%ld", &ms) != 1)
    ms = 0;
  fclose(file);
  struct timespec left = {ms / 1000, ms % 1000 * 1000000L};
  while (nanosleep(&left, &left) != 0 && errno == EINTR)
    ;
}

int fsync(int fd) {
  wait_a_while();
  return ((int (*)(int))dlsym(RTLD_NEXT, "fsync"))(fd);
}

int fdatasync(int fd) {
  wait_a_while();
  return ((int (*)(int))dlsym(RTLD_NEXT, "fdatasync"))(fd);
}
