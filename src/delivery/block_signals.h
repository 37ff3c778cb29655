/*
 * block_signals.h: signals belong to the server's main thread, so other threads block them. The fatal ones stay: a
 * thread that raises one while it is blocked ends the process before the server's handler has noted that the process
 * crashed by itself.
 */
#pragma once

#include <signal.h>

namespace outbox {

/* In the calling thread, and in those that it starts. Restore `before` by pthread_sigmask(). */
inline void block_signals(sigset_t *before) noexcept {
  static constexpr int fatal[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT};
  sigset_t blocked;

  sigfillset(&blocked);
  for (const int number : fatal)
    sigdelset(&blocked, number);
  pthread_sigmask(SIG_SETMASK, &blocked, before);
}

}  // namespace outbox
