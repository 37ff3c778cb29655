/*
 * fault_point.cpp: the fault points of a test build. The folder outbox_faults of the data directory, which only the
 * server's own user and superusers can write, controls them:
 *   armed  "NAME WAY": the next process that comes to the point NAME is broken in that way, once
 *   hit    written before that: "NAME WAY PID"
 *   seen   the points that processes have come to
 * Only open(), read(), write() and unlink() are used, because some points are in commit callbacks, which must not
 * allocate, and others are in parts of src/dispatch past which nothing may jump.
 */
#include "server/base/server.h"

#include "server/base/fault_point.h"

#include <fcntl.h>
#include <signal.h>
#include <time.h>
#include <unistd.h>

static const char ARMED[] = "outbox_faults/armed", HIT[] = "outbox_faults/hit", SEEN[] = "outbox_faults/seen";
static const int WAIT_S = 5;

static void append(const char *path, const char *line) {
  const int file = open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600);

  if (file < 0)
    return;
  if (write(file, line, strlen(line)) < 0) {
  }
  close(file);
}

static void note_seen(const char *name) {
  char line[80], text[16384];
  const int file = open(SEEN, O_RDONLY | O_CLOEXEC);

  snprintf(line, sizeof(line), "%s\n", name);
  if (file >= 0) {
    const ssize_t n = read(file, text, sizeof(text) - 1);
    close(file);
    text[Max(n, 0)] = '\0';
    for (const char *found = text; (found = strstr(found, line)) != NULL; found++)
      if (found == text || found[-1] == '\n')
        return;
  }
  append(SEEN, line);
}

/* Returns the way in which to break, or NULL. Of several processes only the one that removes the file is broken. */
static const char *take(const char *name) {
  static char armed[128];
  const int file = open(ARMED, O_RDONLY | O_CLOEXEC);

  if (file < 0)
    return NULL;
  const ssize_t n = read(file, armed, sizeof(armed) - 1);
  close(file);
  armed[Max(n, 0)] = '\0';
  char *space = strrchr(armed, ' ');
  if (space == NULL)
    return NULL;
  *space = '\0';
  return strcmp(armed, name) == 0 && unlink(ARMED) == 0 ? space + 1 : NULL;
}

static void wait_here(void) {
  struct timespec left = {WAIT_S, 0};

  while (nanosleep(&left, &left) != 0 && errno == EINTR)
    continue;
}

/* Returns the way, if it is yet to be done: an error or a FATAL one. */
static const char *fault(const char *name) {
  const int saved_errno = errno;
  char line[160];

  note_seen(name);
  const char *way = take(name);
  if (way) {
    snprintf(line, sizeof(line), "%s %s %d\n", name, way, (int)getpid());
    append(HIT, line);
    if (strcmp(way, "kill") == 0) {
      kill(getpid(), SIGKILL);
    } else if (strcmp(way, "postmaster") == 0) {
      kill(PostmasterPid, SIGKILL);
    } else if (strcmp(way, "wait") == 0) {
      wait_here();
    } else {
      errno = saved_errno;
      return way;
    }
  }
  errno = saved_errno;
  return NULL;
}

/* An error that a row may have caused: the worker looks for that row. */
void outbox_fault_point(const char *name) {
  Assert(CritSectionCount == 0);
  if (const char *way = fault(name))
    ereport(strcmp(way, "fatal") == 0 ? FATAL : ERROR,
            (errcode(ERRCODE_INTERNAL_ERROR), errmsg("outbox fault point \"%s\"", name)));
}

void outbox_signal_point(const char *name) {
  if (const char *way = fault(name))
    raise(strcmp(way, "fatal") == 0 ? SIGTERM : SIGINT);
}

void outbox_state_changes(const char *machine, int state, int next) noexcept {
  char name[64];

  snprintf(name, sizeof(name), "%s:%d:%d", machine, state, next);
  outbox_signal_point(name);
}
