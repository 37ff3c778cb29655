/*
 * out_of_memory.h: memory has one rule. An allocation that fails throws std::bad_alloc, and nobody waits for memory
 * or does with less. In a session the call fails. In a worker the failure is noted here as well, and the server's
 * main thread, which the engine tells (OB_LOG_FATAL), ends the process: the next worker goes on as after a kill. The
 * engine hands out no completion any more, so what an exception has left half done does no harm.
 *
 * The state is the library's and not an engine's: libraries in C call functions that know no engine.
 */
#pragma once

#include <exception>
#include <new>

namespace outbox {

/* Any thread. */
void out_of_memory() noexcept;
bool is_out_of_memory() noexcept;
/* An engine begins: from now on out_of_memory() writes to this eventfd. -1: it ends. */
void set_out_of_memory_fd(int fd) noexcept;

/* Runs `body` for a thread, or for a library in C: no exception leaves it. */
template <class Body> void or_out_of_memory(Body body) noexcept {
  try {
    body();
  } catch (const std::bad_alloc &) {
    out_of_memory();
  } catch (...) { /* who runs `body` reports what it did not finish */
  }
}

/* For a handler that reports a failure: its text. A lack of memory is not reported, but thrown on. */
inline const char *text_unless_memory(const std::exception &failure) {
  if (dynamic_cast<const std::bad_alloc *>(&failure))
    throw;
  return failure.what();
}

}  // namespace outbox
