/*
 * probe.h: tries a sink's options: connects, authenticates, reads permissions, and on request sends a test event.
 * The kind of sink records its findings step by step on the probe's thread; the main thread reads them with poll().
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
  std::string message;      /* the fact: which peer responded, or why the step failed */
  std::string hint;         /* the next step for a user; empty = nothing to do */
  std::optional<double> ms; /* duration; not set = measured from the previous step */
};

class Probe {
public:
  using Clock = std::chrono::steady_clock;

  Probe(std::shared_ptr<CompletionQueue> completion_queue, std::string sink, std::chrono::milliseconds timeout,
        bool send, std::string topics);

  /* ---- on the probe's thread ---- */

  /* Parses the options and lets the kind try them. Ends soon after the deadline or cancel(). */
  void run(const SinkKind &kind, const Options &server, const Options &mapping, Owner owner);

  /* The name of the server, for hints with SQL. */
  const std::string &sink() const { return sink_; }
  /* The longest wait before over() must be checked again. */
  static constexpr std::chrono::milliseconds slice{20};
  /* The probe was cancelled, or its time is up. */
  bool over() const { return cancelled_ || Clock::now() >= deadline_; }
  std::chrono::milliseconds left() const;
  std::chrono::milliseconds timeout() const { return timeout_; }
  /* Whether a test event is asked for. It is sent if the kind calls can_deliver(). */
  bool sends() const { return send_; }
  /* The kind calls it when all of its steps show that events would be delivered. */
  void can_deliver() { can_deliver_ = true; }
  /* The topics of pending events, separated by commas. */
  const std::string &topics() const { return topics_; }
  double ms_since_start(Clock::time_point when) const;
  void passed(std::string name, std::string message, std::string hint = {}, std::optional<double> ms = {});
  void failed(std::string name, std::string message, std::string hint = {}, std::optional<double> ms = {});

  /* ---- on the main thread ---- */

  void cancel() { cancelled_ = true; }
  /* The steps so far. Returns true when the probe has ended. */
  bool poll(std::vector<ProbeStep> &steps) const;

private:
  using Remains = std::vector<std::shared_ptr<void>>;
  void try_out(const SinkKind &kind, const Options &server, const Options &mapping, Owner owner, Remains &remains);
  void add(ProbeStep step);

  const OwnThread main_;
  const std::shared_ptr<CompletionQueue> completion_queue_;
  const std::string sink_;
  const std::chrono::milliseconds timeout_;
  const bool send_;
  const std::string topics_;
  const Clock::time_point start_, deadline_;
  Clock::time_point step_began_;
  SecretMask secrets_; /* set once the options are known to be valid */
  bool can_deliver_ = false;
  std::atomic<bool> cancelled_{false};
  mutable std::mutex mutex_; /* guards steps_ and done_ */
  std::vector<ProbeStep> steps_;
  bool done_ = false;
};

}  // namespace outbox
