/*
 * until_memory.h: for what must not be lost when memory is short: the outcome of an event, or the wake-up of a
 * thread. To drop it would leave an event in flight forever, so the thread, also the server's main one, waits until
 * another process or thread has freed memory. What can be tried again later, or said to the caller, throws instead.
 *
 * The wait has no bound. On the main thread SIGTERM only sets a flag, which is looked at after the wait: a fast
 * shutdown waits too, an immediate one (SIGQUIT) does not.
 */
#pragma once

#include <chrono>
#include <new>
#include <string>
#include <string_view>
#include <thread>

namespace outbox {

/* Repeats `body` until it ends without std::bad_alloc. A body that throws it must have changed nothing, or nothing
 * that its repetition would do twice. */
template <class Body> auto until_memory(Body body) {
  constexpr std::chrono::milliseconds pause{1};
  for (;;) {
    try {
      return body();
    } catch (const std::bad_alloc &) { /* pause after the exception is destroyed */
    }
    std::this_thread::sleep_for(pause);
  }
}

/* The texts as one, or an empty one when memory is short: for explanations. */
inline std::string text_if_memory(std::string_view text, std::string_view more = {}) noexcept {
  try {
    return std::string(text).append(more);
  } catch (const std::bad_alloc &) {
    return {};
  }
}

}  // namespace outbox
