/*
 * batch_sink.cpp: a failure is reported only by poll(), on the main thread. So the main thread cannot submit a
 * later event of the key between the failure and its report.
 */
#include "delivery/engine/batch_sink.h"

#include <algorithm>
#include <utility>

#include "delivery/base/out_of_memory.h"
#include "delivery/base/thread.h"

namespace outbox {

BatchSink::BatchSink(std::shared_ptr<Reporter> reporter, Render render, Deliver deliver, size_t most)
    : reporter_(std::move(reporter)), render_(std::move(render)), deliver_(std::move(deliver)), most_(most),
      thread_(start_thread([this] { run(); })) {}

BatchSink::~BatchSink() {
  {
    std::lock_guard lock(mutex_);
    ending_ = true;
  }
  work_.notify_one();
  thread_.join();
}

uint32_t BatchSink::credit() const {
  std::lock_guard lock(mutex_);
  return failed_ ? 0 : static_cast<uint32_t>(most_ - queued_.events.size());
}

Submitted BatchSink::submit(const ob_event &event) {
  if (credit() == 0)
    return false;
  std::string message = render_(event);
  std::lock_guard lock(mutex_);
  if (failed_)
    return false;
  queued_.messages.push_back(std::move(message));
  queued_.events.push_back({{outbox::Outcome::Sent}, event.ticket, event.key_hash});
  return true;
}

void BatchSink::flush() {
  work_.notify_one();
}

BatchSink::Outcome BatchSink::deliver(const std::vector<std::string> &messages) {
  try {
    return deliver_(messages);
  } catch (const std::exception &error) {
    return Outcome::failed(0, Failure::SinkDown, text_unless_memory(error));
  } catch (...) {
    return Outcome::failed(0, Failure::SinkDown, {});
  }
}

outbox::Outcome BatchSink::outcome_of(Failure how) {
  switch (how) {
  case Failure::Retry:
  case Failure::Rejected: /* for good: max_refusals */
    return outbox::Outcome::Retry;
  case Failure::RetryBlameSink:
    return outbox::Outcome::RetryBlameSink;
  case Failure::Refused:
    return outbox::Outcome::Refused;
  case Failure::SinkDown:
    break;
  }
  return outbox::Outcome::SinkDown;
}

void BatchSink::run() {
  std::unique_lock lock(mutex_);
  while (true) {
    work_.wait(lock, [this] { return ending_ || (!failed_ && !queued_.events.empty()); });
    if (ending_)
      return;
    in_flight_ = std::exchange(queued_, {});
    std::vector<std::string> messages = std::move(in_flight_.messages);
    lock.unlock();
    Outcome outcome = deliver(messages);
    lock.lock();
    if (outcome.all_sent() || outcome.delivered_ >= messages.size()) {
      for (size_t i = 0; i < std::min(outcome.acknowledgements_.size(), in_flight_.events.size()); i++)
        in_flight_.events[i].acknowledgement = std::move(outcome.acknowledgements_[i]);
      reporter_->complete(std::exchange(in_flight_.events, {}));
    } else if (!in_flight_.events.empty()) {
      failure_ = std::move(outcome);
      failed_ = true;
      reporter_->wake();
    }
  }
}

void BatchSink::return_from(Batch &batch, size_t from) {
  for (size_t i = from; i < batch.events.size(); i++)
    batch.events[i].outcome = outbox::Outcome::Returned;
  reporter_->complete(std::move(batch.events));
  batch = {};
}

void BatchSink::poll() {
  std::lock_guard lock(mutex_);
  if (!failed_)
    return;
  if (failure_.delivered_ < in_flight_.events.size()) {
    Completion &failed = in_flight_.events[failure_.delivered_];
    failed.outcome = outcome_of(*failure_.how_);
    failed.max_refusals = *failure_.how_ == Failure::Rejected ? 1 : 0;
    failed.error = std::move(failure_.error_);
  }
  return_from(in_flight_, failure_.delivered_ + 1);
  return_from(queued_, 0);
  failed_ = false;
}

void BatchSink::release_queued() {
  std::lock_guard lock(mutex_);
  return_from(queued_, 0);
}

void BatchSink::abandon() {
  poll();
  std::lock_guard lock(mutex_);
  return_from(in_flight_, 0);
  return_from(queued_, 0);
}

}  // namespace outbox
