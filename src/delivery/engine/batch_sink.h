/*
 * batch_sink.h: a sink made of two functions, for peers whose client library blocks. It has one thread and at most
 * one batch in flight, and handles what a Sink must do about threads, order and partial failures.
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
  /* How a message failed; the values are those of outbox::Outcome. */
  enum class Failure { Retry, RetryBlameSink, Refused, Rejected, SinkDown };

  /* The result of one batch. */
  class Outcome {
  public:
    /* All messages were delivered. */
    static Outcome sent() { return {}; }
    /* The same, with the peer's answer for each message, as a text for people: story() shows it of events that are
     * kept.
     */
    static Outcome sent(std::vector<std::string> acknowledgements) {
      Outcome outcome;
      outcome.acknowledgements_ = std::move(acknowledgements);
      return outcome;
    }
    /* The first `delivered` messages were delivered, the next one failed, and the ones after it are returned.
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
    std::vector<std::string> acknowledgements_;
  };
  /* Makes the message of an event. Called on the main thread, so it must not wait. May throw. */
  using Render = std::function<std::string(const ob_event &event)>;
  /* Delivers 1 to `most` messages in order. Called on the sink's thread; it may wait, but must return eventually. An
   * exception counts as SinkDown. */
  using Deliver = std::function<Outcome(const std::vector<std::string> &messages)>;

  BatchSink(std::shared_ptr<Reporter> reporter, Render render, Deliver deliver, size_t most = 1000);
  ~BatchSink() override; /* waits for the batch in flight */

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
  void return_from(Batch &batch, size_t from);
  Outcome deliver(const std::vector<std::string> &messages);
  static outbox::Outcome outcome_of(Failure how);

  const std::shared_ptr<Reporter> reporter_;
  const Render render_;
  const Deliver deliver_;
  const size_t most_;
  mutable std::mutex mutex_; /* guards all members below; never held while a batch is delivered */
  std::condition_variable work_;
  Batch queued_, in_flight_;          /* in_flight_ without events: its events were returned by abandon() */
  Outcome failure_ = Outcome::sent(); /* result of the batch in flight until poll() has reported it */
  bool failed_ = false, ending_ = false;
  std::thread thread_; /* last: the thread uses all members above */
};

}  // namespace outbox
