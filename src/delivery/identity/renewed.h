/*
 * renewed.h: a value that a peer grants for a limited time, such as a token or credentials: kept, and renewed on a
 * thread of its own before it ends. Nobody waits for that thread: the main thread takes what is there, and is told
 * through a listener when there is more.
 */
#pragma once

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "delivery/base/out_of_memory.h"
#include "delivery/base/thread.h"
#include "delivery/identity/http_fetch.h"

namespace outbox {

template <class Value> struct Grant {
  using Time = std::chrono::steady_clock::time_point;
  Value value;
  Time expires = Time::max();
};

/*
 * Threads: any thread may call value(), error() and refused(). The thread calls `fetch` and the listener, one after
 * the other and without a lock. The destructor stops a running fetch, which takes at most 50 ms, and waits for the
 * thread.
 *
 * A value is renewed after four fifths of its lifetime. After a failure the next attempt follows in 0.5 s, 1 s, ...
 * 10 s; the former value stays until it expires.
 */
template <class Value> class Renewed {
public:
  using Time = typename Grant<Value>::Time;
  using Fetch = std::function<Grant<Value>(const Stop &stop)>; /* throws std::exception with a text for users */
  using Listener = std::function<void()>;                      /* after each attempt; must not throw */

  /* Throws std::system_error if no thread can be started. */
  explicit Renewed(
      Fetch fetch, Listener listener = [] {})
      : fetch_(std::move(fetch)), listener_(std::move(listener)), thread_(start_thread([this] { run(); })) {}
  ~Renewed() {
    {
      std::lock_guard lock(mutex_);
      stopping_ = true;
    }
    changed_.notify_all();
    thread_.join();
  }
  Renewed(const Renewed &) = delete;
  Renewed &operator=(const Renewed &) = delete;

  struct Now {
    std::shared_ptr<const Value> value; /* null: none was granted yet, or it has expired */
    Time expires{};
    std::string error; /* why the last attempt failed; empty: it did not fail, or is the first and has not ended */
  };
  Now now() const {
    std::lock_guard lock(mutex_);
    bool valid = value_ && std::chrono::steady_clock::now() < expires_;
    return {valid ? value_ : nullptr, expires_, error_};
  }

  /* A peer has refused this value: renew it now, unless that is done already. */
  void refused(const std::shared_ptr<const Value> &value) {
    std::lock_guard lock(mutex_);
    if (value != value_)
      return;
    value_ = nullptr;
    changed_.notify_all();
  }

private:
  void run() {
    using std::chrono::milliseconds;
    constexpr milliseconds first{500}, longest{10'000};
    milliseconds pause = first;
    std::unique_lock lock(mutex_);
    while (!stopping_) {
      lock.unlock();
      auto began = std::chrono::steady_clock::now();
      std::shared_ptr<const Value> value;
      Time expires{};
      std::string error;
      try {
        Grant<Value> grant = fetch_([this] { return stopping(); });
        expires = grant.expires;
        value = std::make_shared<const Value>(std::move(grant.value));
      } catch (const std::exception &failure) {
        error = text_unless_memory(failure);
      }
      lock.lock();
      auto now = std::chrono::steady_clock::now();
      Time next = now + pause;
      const bool granted = value != nullptr;
      if (granted) {
        value_ = std::move(value);
        expires_ = expires;
        pause = first;
        next = next_after(now, expires);
      } else {
        pause = std::min(2 * pause, longest);
      }
      error_ = std::move(error);
      lock.unlock();
      listener_();
      lock.lock();
      changed_.wait_until(lock, next, [&] { return stopping_ || (granted && !value_); });
      if (granted && !value_) /* refused: a peer that refuses each value must not make a loop without pause */
        changed_.wait_until(lock, began + first, [&] { return stopping_; });
    }
  }

  bool stopping() const {
    std::lock_guard lock(mutex_);
    return stopping_;
  }

  static Time next_after(Time now, Time expires) {
    constexpr std::chrono::seconds least{1};
    constexpr std::chrono::hours most{12};
    if (expires - now > most * 2)
      return now + most;
    return now + std::max<typename Time::duration>((expires - now) / 5 * 4, least);
  }

  const Fetch fetch_;
  const Listener listener_;
  mutable std::mutex mutex_; /* guards the members down to error_ */
  std::condition_variable changed_;
  bool stopping_ = false;
  std::shared_ptr<const Value> value_;
  Time expires_{};
  std::string error_;
  std::thread thread_; /* last member: it uses the others */
};

}  // namespace outbox
