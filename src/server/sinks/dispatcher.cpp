/* dispatcher.cpp: keeps the worker's one dispatch::Dispatch object. */
#include "server/sinks/dispatcher.h"

#include "server/process/worker_error.h"

static dispatch::Dispatch *instance = NULL;

static void end_worker(void) {
  worker_out_of_memory("An allocation failed in the worker's decisions.");
}

void dispatcher_init(void) {
  Assert(instance == NULL);
  dispatch::when_out_of_memory(end_worker);
  instance = dispatch::create();
}

dispatch::Dispatch &dispatcher(void) {
  Assert(instance != NULL);
  return *instance;
}
