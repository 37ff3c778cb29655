/* dispatcher.cpp: keeps the worker's one dispatch::Dispatch object. */
#include "server/sinks/dispatcher.h"

static dispatch::Dispatch *instance = NULL;

void dispatcher_init(void) {
  Assert(instance == NULL);
  instance = dispatch::create();
  require_memory(instance != NULL);
}

dispatch::Dispatch &dispatcher(void) {
  Assert(instance != NULL);
  return *instance;
}

void require_memory(bool done) {
  if (!done)
    ereport(ERROR, (errcode(ERRCODE_OUT_OF_MEMORY), errmsg("out of memory")));
}
