/*
 * thread.h: how the delivery library starts a thread. Signals belong to the server's main thread, so every other
 * thread has all of them blocked; and an exception must not leave a thread, so it ends there. And who may call what:
 * an object that belongs to one thread asserts it, where asserts are compiled in (tests, and a server that has its
 * own).
 */
#pragma once

#include <csignal>
#include <thread>
#include <utility>

namespace outbox {

/* Blocks every signal while it lives; threads that are started meanwhile inherit that. */
class SignalsBlocked {
public:
  SignalsBlocked() {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
  ~SignalsBlocked() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  SignalsBlocked(const SignalsBlocked &) = delete;
  SignalsBlocked &operator=(const SignalsBlocked &) = delete;

private:
  sigset_t before_;
};

/* The one thread that an object, or a part of it, belongs to: the one that made this. */
class OwnThread {
public:
  bool is_current() const noexcept { return std::this_thread::get_id() == id_; }

private:
  std::thread::id id_ = std::this_thread::get_id();
};

template <class Body> std::thread start_thread(Body body) {
  SignalsBlocked blocked;
  return std::thread([body = std::move(body)]() mutable noexcept {
    try {
      body();
    } catch (...) {
      /* There is nobody to tell: what the body owed is settled by its owner. */
    }
  });
}

}  // namespace outbox
