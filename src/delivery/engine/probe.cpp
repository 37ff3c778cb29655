/*
 * probe.cpp: runs a probe on a thread of its own and collects its steps. Texts are masked and cleaned as they are
 * added, because peers wrote parts of them. The main thread can read the steps at any time, also while a probe
 * hangs.
 */
#include "delivery/engine/probe.h"

#include <algorithm>
#include <cassert>

#include "delivery/base/clean_text.h"
#include "delivery/base/out_of_memory.h"
#include "delivery/engine/sink_options.h"
#include "delivery/engine/test_delivery.h"

namespace outbox {

using std::chrono::milliseconds;

static double ms_between(Probe::Clock::time_point from, Probe::Clock::time_point to) {
  return std::chrono::duration<double, std::milli>(to - from).count();
}

Probe::Probe(std::shared_ptr<CompletionQueue> completion_queue, std::string sink, milliseconds timeout, bool send,
             std::string topics)
    : completion_queue_(std::move(completion_queue)), sink_(std::move(sink)), timeout_(timeout), send_(send),
      topics_(std::move(topics)), start_(Clock::now()), deadline_(start_ + timeout), step_began_(start_) {}

milliseconds Probe::left() const {
  return std::max(milliseconds(0), std::chrono::duration_cast<milliseconds>(deadline_ - Clock::now()));
}

double Probe::ms_since_start(Clock::time_point when) const {
  return ms_between(start_, when);
}

void Probe::add(ProbeStep step) {
  Clock::time_point now = Clock::now();
  if (!step.ms)
    step.ms = ms_between(step_began_, now);
  step_began_ = now;
  step.message = text_to_show(step.message, secrets_); /* may contain a peer's text */
  step.hint = text_to_show(step.hint, secrets_);
  std::lock_guard lock(mutex_);
  steps_.push_back(std::move(step));
  completion_queue_->wake(); /* who waits for the probe may see the step */
}

void Probe::passed(std::string name, std::string message, std::string hint, std::optional<double> ms) {
  add({std::move(name), true, std::move(message), std::move(hint), ms});
}

void Probe::failed(std::string name, std::string message, std::string hint, std::optional<double> ms) {
  add({std::move(name), false, std::move(message), std::move(hint), ms});
}

void Probe::try_out(const SinkKind &kind, const Options &server, const Options &mapping, Owner owner,
                    Remains &remains) {
  try {
    auto config = parse_options(kind, server, &mapping, owner);
    secrets_ = kind.secrets(*config, mapping);
    remains.push_back(kind.probe(config, *this));
    if (send_ && can_deliver_)
      remains.push_back(deliver_test_event(kind, std::move(config), *this));
  } catch (const BadInput &bad) {
    failed("options", bad.what() + (bad.detail.empty() ? "" : ": " + bad.detail), bad.hint);
  } catch (const std::exception &error) { /* a library failed to start */
    failed("probe", text_unless_memory(error));
  }
}

void Probe::run(const SinkKind &kind, const Options &server, const Options &mapping, Owner owner) {
  assert(!main_.is_current());
  Remains remains; /* destroyed last, after done_ is set: that may take longer than the probe */
  or_out_of_memory([&] { try_out(kind, server, mapping, owner, remains); });
  std::lock_guard lock(mutex_);
  done_ = true;
  completion_queue_->wake();
}

bool Probe::poll(std::vector<ProbeStep> &steps) const {
  assert(main_.is_current());
  std::lock_guard lock(mutex_);
  steps = steps_;
  return done_;
}

}  // namespace outbox
