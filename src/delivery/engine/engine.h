/*
 * engine.h: the implementation of the delivery API: one engine per worker, with its sinks, their circuit breakers
 * and the completion queue. Everything here belongs to the caller's thread; other threads communicate only through
 * the completion queue.
 */
#pragma once

#include <array>
#include <chrono>
#include <deque>
#include <list>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_set>
#include <vector>

#include "delivery/base/thread.h"
#include "delivery/engine/circuit_breaker.h"
#include "delivery/engine/completion_queue.h"
#include "delivery/engine/background_jobs.h"
#include "delivery/engine/probe.h"
#include "delivery/engine/sink.h"
#include "delivery/kind.h"

namespace outbox {

class Engine;

/* An open sink with its circuit breaker and counters: what an ob_sink points to. */
class OpenSink : public ob_sink {
public:
  OpenSink(Engine &engine, uint64_t id, std::string name, std::shared_ptr<const SinkConfig> config,
           bool blocks_on_dead_letter)
      : ob_sink{}, engine_(engine), id_(id), name_(std::move(name)), config_(std::move(config)),
        blocks_on_dead_letter_(blocks_on_dead_letter) {}

  size_t submit(const ob_event *events, size_t n);
  void status(ob_sink_status &out);
  void close(std::chrono::milliseconds grace);
  void share(size_t index, size_t of, int64_t *rate_clock);
  void keep_acknowledgements(bool keep);
  void begin_slowly();
  void end_pause();
  bool next_resumed(std::string &error);
  bool finished() const { return closing_ && outstanding_ == 0; }
  Engine &engine() const { return engine_; }

private:
  friend class Engine;
  using Time = CircuitBreaker::Time;

  bool submit(const ob_event &event);
  template <class Step> void or_warn(Step step);
  void end_at_once(Completion completion);
  void on_signal(const CompletionQueue::Report &report);
  /* Cuts the delay for which the peer asks to what the sink allows, for the circuit breaker too. */
  ob_outcome on_completion(Completion &completion, Time now);
  int64_t delay_ms(const Completion &completion, ob_outcome outcome) const;
  void on_sent(uint64_t ticket, Time now);
  void count_failure(ob_reason reason);
  void circuit_moved(bool was_open, std::string_view reason);
  uint32_t credit(Time now);
  void poll(Time now);

  Engine &engine_;
  const uint64_t id_;
  const std::string name_;
  std::shared_ptr<const SinkConfig> config_;
  std::shared_ptr<Reporter> reporter_;
  const bool blocks_on_dead_letter_; /* on_dead_letter 'block': a rejected event blocks its key */
  std::unique_ptr<Sink> sink_;
  /* Keys of which an event ended within submit() and is not yet collected. */
  std::unordered_set<uint64_t> stopped_keys_;
  CircuitBreaker breaker_;
  std::string last_error_;
  std::string last_failure_; /* the last error for which the sink may be to blame */
  std::string degraded_;     /* why a part of the sink is down; empty = all parts work */
  std::deque<std::string> resumed_;
  size_t outstanding_ = 0; /* events accepted and not yet collected by the caller */
  uint64_t failed_tries_ = 0;
  uint64_t n_failures_ = 0;
  std::array<uint64_t, OB_REASONS> failures_{};
  uint64_t unanswered_ = 0;
  bool keeps_acknowledgements_ = false;
  bool disabled_ = false;
  bool closing_ = false;
  bool abandoned_ = false;
  Time grace_end_{};
};

class Engine : public ob_engine {
public:
  /* `fd` is an epoll descriptor: readable when the completion queue's eventfd or the timer is. Throws
   * std::system_error. */
  Engine();
  ~Engine();
  Engine(const Engine &) = delete;
  Engine &operator=(const Engine &) = delete;

  bool is_callers_thread() const noexcept { return caller_.is_current(); }
  OpenSink *open(std::string name, const SinkKind &kind, std::shared_ptr<const SinkConfig> config,
                 bool blocks_on_dead_letter, SecretMask secrets);
  /* Updates `n` after each completion, so that none is lost when an exception is thrown. */
  void collect(ob_completion *out, size_t max, size_t &n);
  bool next_log(ob_log_line &line);
  void forget(OpenSink *open_sink);
  /* Starts a probe, which ends by itself. Throws std::system_error if no thread can be started. */
  std::shared_ptr<Probe> probe(std::string name, const SinkKind &kind, Options server, Options mapping, Owner owner,
                               std::chrono::milliseconds timeout, bool send, std::string topics);
  /* Returns true if all threads ended before the timeout. */
  bool close(std::chrono::milliseconds timeout);

private:
  friend class OpenSink;
  OpenSink *find(uint64_t id);
  bool collect(OpenSink &open_sink, CompletionQueue::Report &report, CircuitBreaker::Time now, ob_completion *out,
               size_t max, size_t &n);
  void arm_timer();
  void destroy(std::unique_ptr<Sink> sink) noexcept;

  const OwnThread caller_;
  std::shared_ptr<CompletionQueue> completion_queue_;
  BackgroundJobs background_;
  std::vector<std::unique_ptr<OpenSink>> open_sinks_;
  std::vector<std::weak_ptr<Probe>> probes_;
  uint64_t next_id_ = 1;
  std::list<CompletionQueue::Report> reports_; /* taken from the completion queue and not yet collected */
  size_t next_in_report_ = 0;                  /* index of the next completion in reports_.front() */
  std::deque<std::string> errors_;             /* the texts to which ob_completion.error points */
  int timer_fd_; /* fires at the end of the next grace period, or at a sink's check_at() */
  CircuitBreaker::Time armed_ = CircuitBreaker::Time::max();
};

}  // namespace outbox
