/*
 * batch_sink.h: a sink made of two functions, for peers that are talked to by calls that wait. It has a thread of its
 * own and one batch of events under way at a time; what threads, order and an end in the middle ask of a Sink is
 * settled here.
 */
#pragma once

#include <condition_variable>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "delivery/engine/sink.h"

namespace outbox {

class BatchSink final : public Sink {
public:
  /* How a message fails: as the Outcome of the same name says. */
  enum class Failure { Retry, RetryBlameSink, Refused, Rejected, SinkDown };

  /* What became of a batch. */
  class Outcome {
  public:
    /* All of it was delivered. */
    static Outcome sent() { return {}; }
    /* The first `delivered` messages were delivered, the next one has failed, and those behind it come again.
     * SinkDown: no message is to blame. */
    static Outcome failed(size_t delivered, Failure how, std::string error) {
      return {delivered, how, std::move(error)};
    }

    bool all_sent() const { return !how_; }
    const std::string &error() const { return error_; }

  private:
    friend class BatchSink;
    Outcome() = default;
    Outcome(size_t delivered, Failure how, std::string error)
        : delivered_(delivered), how_(how), error_(std::move(error)) {}

    size_t delivered_ = 0;
    std::optional<Failure> how_;
    std::string error_;
  };
  /* On the main thread, which it must not keep waiting: what is to be delivered of an event. May throw. */
  using Render = std::function<std::string(const ob_event &event)>;
  /* On the sink's thread: delivers 1 to `most` messages in their order. It may take its time, and must end some time.
   * What it throws is SinkDown. */
  using Deliver = std::function<Outcome(const std::vector<std::string> &messages)>;

  BatchSink(std::shared_ptr<Reporter> reporter, Render render, Deliver deliver, size_t most = 1000);
  ~BatchSink() override; /* waits for the end of the batch under way */

  uint32_t credit() const override;
  Submitted submit(const ob_event &event) override;
  void flush() override;
  void poll() override;
  void release_queued() override;
  void abandon() override;

private:
  struct Batch {
    std::vector<Completion> events;
    std::vector<std::string> messages;
  };

  void run();
  void give_back(Batch &batch, size_t from);
  Outcome deliver(const std::vector<std::string> &messages) noexcept;
  static outbox::Outcome outcome_of(Failure how);

  const std::shared_ptr<Reporter> reporter_;
  const Render render_;
  const Deliver deliver_;
  const size_t most_;
  mutable std::mutex mutex_; /* guards all below, and is never held while a batch is delivered */
  std::condition_variable work_;
  Batch waiting_, under_way_;         /* under way, but without events: they were given up */
  Outcome failure_ = Outcome::sent(); /* of the batch under way, until poll() has reported it */
  bool failed_ = false, ending_ = false;
  std::thread thread_; /* last: it uses all above */
};

}  // namespace outbox
