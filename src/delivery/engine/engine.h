/*
 * engine.h: what runs behind the delivery API. One engine per worker: its sinks, their circuits, and the queue of
 * completions. Everything here belongs to the caller's thread; other threads reach it through the completion queue
 * only.
 */
#pragma once

#include <array>
#include <chrono>
#include <deque>
#include <memory>
#include <string>
#include <unordered_set>
#include <vector>

#include "delivery/base/thread.h"
#include "delivery/engine/circuit_breaker.h"
#include "delivery/engine/completion_queue.h"
#include "delivery/engine/probe.h"
#include "delivery/engine/background_jobs.h"
#include "delivery/engine/sink.h"

namespace outbox {

class Engine;

/* A sink as the caller sees it: the sink itself, its circuit, and what is outstanding. */
class Runner {
public:
  Runner(Engine &engine, uint64_t id, std::string name, std::shared_ptr<const SinkConfig> config, bool hold)
      : engine_(engine), id_(id), name_(std::move(name)), config_(std::move(config)), hold_(hold) {}

  size_t submit(const ob_event *events, size_t n);
  void status(ob_sink_status &out);
  void close(std::chrono::milliseconds grace);
  void share(size_t index, size_t of, int64_t *turns);
  void begin_slowly();
  bool next_resumed(std::string &error);
  bool finished() const { return closing_ && outstanding_ == 0; }
  Engine &engine() const { return engine_; }

private:
  friend class Engine;
  using Time = CircuitBreaker::Time;

  bool submit(const ob_event &event);
  void end_at_once(Completion completion);
  void on_signal(const CompletionQueue::Report &report);
  ob_outcome on_completion(const Completion &completion, Time now);
  void on_sent(uint64_t ticket, Time now);
  void count_failure(ob_reason reason);
  void circuit_moved(bool was_open, const std::string &reason);
  uint32_t credit(Time now);
  void poll(Time now);

  Engine &engine_;
  const uint64_t id_;
  const std::string name_;
  std::shared_ptr<const SinkConfig> config_;
  std::shared_ptr<Reporter> reporter_;
  const bool hold_; /* on_dead_letter: a rejected event blocks its key */
  std::unique_ptr<Sink> sink_;
  std::unordered_set<uint64_t> stopped_keys_; /* an event of theirs ended within submit(), not yet collected */
  CircuitBreaker breaker_;
  std::string last_error_;
  std::string last_failure_; /* that the sink may be to blame for */
  std::string degraded_;     /* why part of it is down */
  std::deque<std::string> resumed_;
  size_t outstanding_ = 0; /* taken and not yet collected by the caller */
  uint64_t failed_tries_ = 0;
  uint64_t n_failures_ = 0;
  std::array<uint64_t, OB_REASONS> failures_{};
  bool disabled_ = false;
  bool closing_ = false;
  bool abandoned_ = false;
  Time grace_end_{};
};

class Engine {
public:
  Engine(); /* throws std::system_error */
  ~Engine();
  Engine(const Engine &) = delete;
  Engine &operator=(const Engine &) = delete;

  bool is_callers_thread() const noexcept { return caller_.is_current(); }
  int fd() const { return epoll_fd_; }
  Runner *open(std::string name, const SinkKind &kind, std::shared_ptr<const SinkConfig> config, bool hold,
               SecretMask secrets);
  /* Writes to `n` as it goes, so that nothing is lost when it throws. */
  void collect(ob_completion *out, size_t max, size_t &n);
  bool next_log(ob_log_line &line);
  void forget(Runner *runner);
  /* Begins a probe; it ends by itself. Throws std::system_error when there are no more threads. */
  std::shared_ptr<Probe> probe(std::string name, const SinkKind &kind, Options server, Options mapping,
                               std::chrono::milliseconds timeout, bool send);
  /* True when every thread ended in time. */
  bool close(std::chrono::milliseconds timeout);

private:
  friend class Runner;
  Runner *find(uint64_t id);
  bool collect(Runner &runner, const CompletionQueue::Report &report, CircuitBreaker::Time now, ob_completion *out,
               size_t max, size_t &n);
  void arm_timer();

  const OwnThread caller_;
  std::shared_ptr<CompletionQueue> completion_queue_;
  BackgroundJobs background_;
  std::vector<std::unique_ptr<Runner>> runners_;
  std::vector<std::weak_ptr<Probe>> probes_;
  uint64_t next_id_ = 1;
  std::deque<CompletionQueue::Report> reports_; /* taken from the completion queue, not yet collected */
  size_t next_in_report_ = 0;                   /* within the first of them */
  std::deque<std::string> errors_;              /* texts that the caller's completions point to */
  int epoll_fd_;                                /* readable when the completion queue's eventfd or the timer is */
  int timer_fd_;                                /* the end of the next grace period, or a sink's check_at() */
  CircuitBreaker::Time armed_ = CircuitBreaker::Time::max();
};

}  // namespace outbox
