/*
 * scenario.h: the scenarios, and what they have in common: events that are delivered as the worker would, in order
 * per key, again after a failure, and each with exactly one outcome.
 */
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "test/unit/border.h"
#include "shim.h"

namespace calls {

/* Scenarios register themselves. `run` is called in a process of its own; it returns, or calls failed(). */
struct Scenario {
  Scenario(const char *name, void (*run)());
  const char *name;
  void (*run)();
  static std::vector<const Scenario *> &all();
};

/* Ends the process: a promise was broken. */
[[noreturn]] void failed(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Repeats a call that may fail once, because something in it failed. */
template <class Call> auto second_try(const char *what, Call call) {
  auto result = call();
  if (!result)
    result = call();
  if (!result)
    failed("%s failed twice", what);
  return result;
}

using OptionList = std::vector<ob_option>;

inline ob_text text(std::string_view from) {
  return {from.data(), from.size()};
}

/* An event without a ticket. Its texts are static, but for the payload, to which it points. */
ob_event event_of(int key, int seq, const std::string &payload);

/* One engine with one sink. */
class Worker {
public:
  Worker();
  ~Worker();
  Worker(const Worker &) = delete;
  Worker &operator=(const Worker &) = delete;

  void open(const char *kind, const OptionList &options, const OptionList &mapping = {});
  /* Delivers `each` events of each of `keys` keys. */
  void deliver(int keys, int each);
  /* Submits them once, without waiting. */
  void submit_some(int keys, int each);
  /* All that are in flight get their outcome. */
  void close(int grace_ms);

  ob_engines *engine() { return engine_; }
  /* Waits until the engine's descriptor is readable, for `ms` at most. */
  bool wait(int ms);
  /* Collects outcomes; fails for one of an event that is not in flight. */
  size_t collect();
  /* A worker would end. */
  bool is_out_of_memory() const { return is_out_of_memory_; }
  /* As the next worker: opens the engine anew, and the sink if there was one. */
  void begin_again();

private:
  struct Key {
    int sent = 0, next = 0, in_flight = 0;       /* of its events: acknowledged; to be submitted; submitted */
    int failed_at = -1;                          /* the first that has failed; nothing is submitted behind it */
    std::chrono::steady_clock::time_point due{}; /* what was deferred is not submitted before */
  };
  struct Flight {
    int key, seq;
  };
  using Time = std::chrono::steady_clock::time_point;
  /* Without what is deferred beyond `now`. */
  bool submit(int each, Time now);
  void look_for_resumed();
  /* When the next of those deferred beyond `submitted_at` is due; if there are none: after how long the sink hangs.
   */
  int ms_until_due(Time submitted_at) const;
  void ended(const ob_completion &completion);

  ob_engines *engine_ = nullptr;
  ob_sink *sink_ = nullptr;
  std::function<void()> open_again_ = [] {};
  bool is_out_of_memory_ = false;
  uint64_t last_ticket_ = 0;
  std::vector<Key> keys_;
  std::map<uint64_t, Flight> in_flight_;
};

/* What a peer received, in order. For events of one key, the first delivery of each comes in order. */
class Received {
public:
  void add(const std::string &payload); /* thread-safe */
  void check(int keys, int each) const;

private:
  std::vector<std::string> payloads_;
};

}  // namespace calls
