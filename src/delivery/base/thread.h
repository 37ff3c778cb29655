/*
 * thread.h: how the delivery library starts threads, and which thread an object belongs to. Signals are blocked in
 * new threads (block_signals.h). An exception ends its thread, and std::bad_alloc the
 * worker (out_of_memory.h). An object that belongs to one thread holds an OwnThread and asserts is_current(); asserts
 * are compiled into the unit tests and into servers built with assertions.
 */
#pragma once

#include <thread>
#include <utility>

#include "delivery/base/out_of_memory.h"
#include "delivery/block_signals.h"

namespace outbox {

/* Blocks signals for its lifetime; threads started in that time inherit the mask. */
class SignalsBlocked {
public:
  SignalsBlocked() { block_signals(&before_); }
  ~SignalsBlocked() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  SignalsBlocked(const SignalsBlocked &) = delete;
  SignalsBlocked &operator=(const SignalsBlocked &) = delete;

private:
  sigset_t before_;
};

/* The thread that created this object, and that its owner belongs to. */
class OwnThread {
public:
  bool is_current() const noexcept { return std::this_thread::get_id() == id_; }

private:
  std::thread::id id_ = std::this_thread::get_id();
};

template <class Body> std::thread start_thread(Body body) {
  SignalsBlocked blocked;
  return std::thread([body = std::move(body)]() mutable noexcept { or_out_of_memory([&] { body(); }); });
}

}  // namespace outbox
