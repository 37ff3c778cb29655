/*
 * kind_library.cpp: PostgreSQL loads the file as it loads any function's, so its version check and its search path
 * apply. A missing or unfit library concerns the sinks of its kind only: an error is kept as the reason why the kind
 * is not available, and neither an enqueue nor a worker nor the server's start fails.
 */
#include "server/catalog/kind_library.h"

#include "delivery/delivery.h"

extern "C" {
#include "access/xact.h"
#include "utils/memutils.h"
}

typedef const ob_kind_build *(*BuildFunction)(void);
typedef void (*MakeFunction)(void);

/* A kind that is not available. */
typedef struct MissingKind {
  struct MissingKind *next;
  char kind[NAMEDATALEN];
  char file[MAXPGPATH];
} MissingKind;
static MissingKind *missing = NULL; /* in TopMemoryContext, for the life of the process */

static void keep_error(const ErrorData *from, const char *kind, ob_error *error) {
  error->kind = OB_INTERNAL;
  snprintf(error->message, sizeof error->message, "the library of sink kind \"%s\" cannot be loaded", kind);
  strlcpy(error->detail, from->message, sizeof error->detail);
  snprintf(error->hint, sizeof error->hint,
           "Install the package of outbox_%s that was built for the installed outbox and PostgreSQL.", kind);
}

/* An error while a library is loaded leaves nothing behind that a transaction's abort would have to clean. */
static bool load(const char *kind, const char *file, ob_error *error) {
  MemoryContext caller = CurrentMemoryContext;
  volatile BuildFunction build = NULL;
  volatile MakeFunction make = NULL;

  PG_TRY();
  {
    build = (BuildFunction)(void *)load_external_function(file, "outbox_kind_build", true, NULL);
    make = (MakeFunction)(void *)load_external_function(file, "outbox_kind_make", true, NULL);
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
  return make != NULL && ob_kind_register(kind, build(), make, error);
}

static MissingKind **find_missing(const char *kind) {
  MissingKind **at = &missing;

  while (*at && strcmp((*at)->kind, kind) != 0)
    at = &(*at)->next;
  return at;
}

static void add_missing(const char *kind, const char *file) {
  MissingKind *added = (MissingKind *)MemoryContextAllocZero(TopMemoryContext, sizeof(MissingKind));

  strlcpy(added->kind, kind, sizeof(added->kind));
  strlcpy(added->file, file, sizeof(added->file));
  added->next = missing;
  missing = added;
}

void kind_library_load(const char *kind, const char *file) {
  Assert(IsTransactionState());
  MissingKind **at = find_missing(kind);
  ob_error error;

  if (ob_kind_is_registered(kind))
    return;
  memset(&error, 0, sizeof(error));
  if (!load(kind, file, &error)) {
    ob_kind_unavailable(kind, &error);
    if (*at == NULL)
      add_missing(kind, file);
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
    kind_library_load(kind, file);
  }
}
