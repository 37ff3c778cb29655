/*
 * probe.h: a trial of a sink's options: connect, authenticate, ask what is allowed, and send nothing or, on demand, a
 * test event. Each kind of sink writes down what it finds, step by step, on a thread of the probe's own; the main
 * thread reads it when it is over.
 */
#pragma once

#include <atomic>
#include <chrono>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "delivery/base/thread.h"
#include "delivery/engine/completion_queue.h"
#include "delivery/engine/sink.h"
#include "delivery/options/options.h"

namespace outbox {

struct ProbeStep {
  std::string name; /* "connect", "topic" */
  bool ok;
  std::string message;      /* the fact: what answered, or why it failed */
  std::string hint;         /* the next step for a user; empty when there is none */
  std::optional<double> ms; /* how long it took; not set: since the step before */
};

class Probe {
public:
  using Clock = std::chrono::steady_clock;

  Probe(std::shared_ptr<CompletionQueue> completion_queue, std::string sink, std::chrono::milliseconds timeout,
        bool send);

  /* ---- on the probe's thread ---- */

  /* Parses the options and lets the kind try them. Ends soon after the deadline, or when cancelled. */
  void run(const SinkKind &kind, const Options &server, const Options &mapping);

  /* The server's name, for hints that show SQL. */
  const std::string &sink() const { return sink_; }
  /* How long a wait may take before over() is asked again. */
  static constexpr std::chrono::milliseconds slice{20};
  /* Nobody waits any more, or time is up. */
  bool over() const { return cancelled_ || Clock::now() >= deadline_; }
  std::chrono::milliseconds left() const;
  std::chrono::milliseconds timeout() const { return timeout_; }
  /* Whether a test event is to be sent when all else is well. */
  bool sends() const { return send_; }
  double ms_since_start(Clock::time_point when) const;
  void passed(std::string name, std::string message, std::string hint = {}, std::optional<double> ms = {});
  void failed(std::string name, std::string message, std::string hint = {}, std::optional<double> ms = {});

  /* ---- on the main thread ---- */

  void cancel() { cancelled_ = true; }
  /* True when it has ended: then *steps are all that there will be. */
  bool poll(std::vector<ProbeStep> &steps) const;

private:
  std::shared_ptr<void> try_out(const SinkKind &kind, const Options &server, const Options &mapping);
  void add(ProbeStep step);

  const OwnThread main_;
  const std::shared_ptr<CompletionQueue> completion_queue_;
  const std::string sink_;
  const std::chrono::milliseconds timeout_;
  const bool send_;
  const Clock::time_point start_, deadline_;
  Clock::time_point step_began_;
  SecretMask secrets_; /* as soon as the options are known to be in order */
  std::atomic<bool> cancelled_{false};
  mutable std::mutex mutex_; /* guards the next two */
  std::vector<ProbeStep> steps_;
  bool done_ = false;
};

}  // namespace outbox
