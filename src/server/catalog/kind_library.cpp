/*
 * kind_library.cpp: PostgreSQL loads the file as it loads any function's, so its version check and its search path
 * apply. A missing or unfit library concerns the sinks of its kind only: an error is kept as the reason why the kind
 * is not available, and neither an enqueue nor a worker nor the server's start fails.
 */
#include "server/catalog/kind_library.h"

#include "server/base/is_worker.h"
#include "server/storage/crash_record.h"

#include "delivery/block_signals.h"
#include "delivery/delivery.h"

#include <dlfcn.h>
#include <link.h>
#include <signal.h>
#include <time.h>

extern "C" {
#include "access/xact.h"
#include "miscadmin.h"
#include "utils/memutils.h"
}

/* A kind that is not available. */
typedef struct MissingKind {
  struct MissingKind *next;
  char kind[NAMEDATALEN];
  Oid validator;
  char file[MAXPGPATH];
} MissingKind;
static MissingKind *missing = NULL; /* in TopMemoryContext, for the life of the process */

/* A file that was loaded, as it was then. */
typedef struct LoadedFile {
  struct LoadedFile *next;
  char kind[NAMEDATALEN];
  struct stat was;
  char path[MAXPGPATH];
} LoadedFile;
static LoadedFile *loaded_files = NULL; /* in TopMemoryContext */
static const int WRITTEN_FOR_S = 2;     /* a file that has not changed for so long is complete */

/* Also one that does not fit: it is kept as well. One that cannot be read now is about to be replaced. */
static void remember_file(const char *kind, void *handle) {
  struct link_map *info;

  if (dlinfo(handle, RTLD_DI_LINKMAP, &info) != 0)
    return;
  for (const LoadedFile *file = loaded_files; file; file = file->next)
    if (strcmp(file->kind, kind) == 0 && strcmp(file->path, info->l_name) == 0)
      return;
  LoadedFile *added = (LoadedFile *)MemoryContextAllocZero(TopMemoryContext, sizeof(LoadedFile));
  if (stat(info->l_name, &added->was) != 0)
    memset(&added->was, 0, sizeof(added->was));
  strlcpy(added->kind, kind, sizeof(added->kind));
  strlcpy(added->path, info->l_name, sizeof(added->path));
  added->next = loaded_files;
  loaded_files = added;
}

bool kind_library_replaced(void) {
  for (const LoadedFile *file = loaded_files; file; file = file->next) {
    struct stat now;
    if (stat(file->path, &now) == 0 && now.st_ctime < time(NULL) - WRITTEN_FOR_S &&
        crash_build(&now) != crash_build(&file->was))
      return true;
  }
  return false;
}

const struct stat *kind_library_file(const char *kind) {
  for (const LoadedFile *file = loaded_files; file; file = file->next)
    if (strcmp(file->kind, kind) == 0)
      return &file->was;
  return NULL;
}

/* The doctor and sinks/new-sink.md know this message. */
void kind_crashed_error(ob_error *error) {
  memset(error, 0, sizeof(*error));
  error->kind = OB_INTERNAL;
  strlcpy(error->message, "crashed twice while it was opened or sent an event", sizeof(error->message));
  strlcpy(error->detail, "Each crash of a worker restarts the server.", sizeof(error->detail));
  strlcpy(error->hint,
          "Install a build of its kind that does not crash: the sink is then opened by itself. To open it without "
          "one: SELECT outbox.resume('name of the sink');",
          sizeof(error->hint));
}

/* A file that is about to be loaded. Its st_ino is 0 if it is not in PostgreSQL's own folder of libraries. */
static struct stat file_to_load(const char *file) {
  const char *name = strrchr(file, '/');
  char path[MAXPGPATH];
  struct stat now = {};

  snprintf(path, sizeof(path), "%s/%s.so", pkglib_path, name ? name + 1 : file);
  if (stat(path, &now) != 0)
    now.st_ino = 0;
  return now;
}

static void keep_error(const ErrorData *from, const char *kind, ob_error *error) {
  error->kind = OB_INTERNAL;
  snprintf(error->message, sizeof error->message, "the library of sink kind \"%s\" cannot be loaded", kind);
  strlcpy(error->detail, from->message, sizeof error->detail);
  snprintf(error->hint, sizeof error->hint,
           "Install the package of outbox_%s that was built for the installed outbox and PostgreSQL.", kind);
}

/* Warns of an unfit client library, once: a session would be told each time. */
static void check_client_library(const ob_sink_kind *library) {
  ob_client_library loaded;

  library->client_library(&loaded);
  if (server_is_worker && loaded.fitness != OB_FIT)
    ereport(WARNING, (errmsg("outbox: %s", loaded.advice.message), errdetail("%s", loaded.advice.detail),
                      errhint("%s", loaded.advice.hint)));
}

/* An error while a library is loaded leaves nothing behind that a transaction's abort would have to clean. Signals
 * are blocked for the threads that the library may start. */
static bool load(const char *kind, Oid validator, const char *file, ob_error *error) {
  MemoryContext caller = CurrentMemoryContext;
  volatile bool loaded = false;
  const ob_sink_kind *volatile library = NULL;
  const struct stat now = file_to_load(file);
  sigset_t before;

  const Work work = {validator, false, false, 0, 0, crash_build(&now)};
  if (crash_guilt(&work) == Guilt::GUILTY) {
    kind_crashed_error(error);
    return false;
  }
  crash_work_on(&work);
  outbox::block_signals(&before);
  PG_TRY();
  {
    void *handle;
    ob_kind_init init = (ob_kind_init)(void *)load_external_function(file, OB_KIND_INIT, false, &handle);
    remember_file(kind, handle);
    if (init == NULL)
      ereport(ERROR, (errcode(ERRCODE_UNDEFINED_FUNCTION),
                      errmsg("could not find function \"%s\" in file \"%s\"", OB_KIND_INIT, file)));
    library = init();
    loaded = true;
  }
  PG_CATCH();
  {
    MemoryContextSwitchTo(caller);
    ErrorData *raised = CopyErrorData();
    FlushErrorState();
    keep_error(raised, kind, error);
    FreeErrorData(raised);
  }
  PG_END_TRY();
  const bool registered = loaded && ob_kind_register(kind, library, PG_VERSION_NUM, error); /* calls it */
  crash_work_done(); /* first: a SIGQUIT that waits is no crash of the kind's */
  pthread_sigmask(SIG_SETMASK, &before, NULL);
  if (registered)
    check_client_library(library);
  return registered;
}

static MissingKind **find_missing(const char *kind) {
  MissingKind **at = &missing;

  while (*at && strcmp((*at)->kind, kind) != 0)
    at = &(*at)->next;
  return at;
}

static void add_missing(const char *kind, Oid validator, const char *file) {
  MissingKind *added = (MissingKind *)MemoryContextAllocZero(TopMemoryContext, sizeof(MissingKind));

  strlcpy(added->kind, kind, sizeof(added->kind));
  added->validator = validator;
  strlcpy(added->file, file, sizeof(added->file));
  added->next = missing;
  missing = added;
}

/* The library that makes messages only. False: the kind has none that fits. */
static bool load_messages(const char *kind, Oid validator, const char *file) {
  ob_error error; /* not told: the whole library takes its place, or has the same */
  char messages[MAXPGPATH];

  snprintf(messages, sizeof(messages), "%s_messages", file);
  const struct stat found = file_to_load(messages);
  return found.st_ino != 0 && load(kind, validator, messages, &error);
}

void kind_library_load(const char *kind, Oid validator, const char *file, KindPart part) {
  Assert(IsTransactionState());
  MissingKind **at = find_missing(kind);
  ob_error error;

  if (part == KIND_MESSAGES && !server_is_worker) {
    if (ob_kind_is_registered(kind) || load_messages(kind, validator, file))
      return;
  } else if (ob_kind_is_whole(kind)) {
    return;
  }
  memset(&error, 0, sizeof(error));
  if (!load(kind, validator, file, &error)) {
    ob_kind_unavailable(kind, &error);
    if (*at == NULL)
      add_missing(kind, validator, file);
  } else if (*at) {
    MissingKind *found = *at;
    *at = found->next;
    pfree(found);
  }
}

void kind_library_retry(const char *kind) {
  const MissingKind *found = *find_missing(kind);

  if (found) {
    char file[MAXPGPATH];
    strlcpy(file, found->file, sizeof(file));
    kind_library_load(kind, found->validator, file, KIND_WHOLE);
  }
}
