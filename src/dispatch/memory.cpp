/* memory.cpp: how a worker ends, the program knows. */
#include "dispatch/memory.h"

#include <cstdlib>

namespace dispatch {

static void (*end_process)() = std::abort;

void when_out_of_memory(void (*end)()) noexcept {
  end_process = end;
}

void out_of_memory() noexcept {
  end_process();
  std::abort();
}

}  // namespace dispatch
