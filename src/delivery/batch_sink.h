/*
 * batch_sink.h: a sink made of two functions, for peers that are talked to by calls that wait. It has a thread of its
 * own and one batch of events under way at a time; what threads, order and an end in the middle ask of a Sink is
 * settled here.
 */
#pragma once

#include <condition_variable>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "sink.h"

namespace outbox {

class BatchSink final : public Sink {
public:
  /* What became of a batch: the first `sent` events were delivered. Where that is not all of them, the next one ended
   * as `result` and `error` say, and those behind it come again. SinkDown: no event is to blame. */
  struct Outcome {
    size_t sent = 0;
    Result result = Result::Sent;
    std::string error = {};
  };
  /* On the main thread, which it must not keep waiting: what is to be delivered of an event. May throw. */
  using Render = std::function<std::string(const ob_event &event)>;
  /* On the sink's thread: delivers 1 to `most` messages in their order. It may take its time, and must end some time.
   * What it throws is SinkDown. */
  using Deliver = std::function<Outcome(const std::vector<std::string> &messages)>;

  BatchSink(std::shared_ptr<Reporter> reporter, Render render, Deliver deliver, size_t most = 1000);
  ~BatchSink() override; /* waits for the end of the batch under way */

  uint32_t credit() const override;
  bool submit(const ob_event &event) override;
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

  const std::shared_ptr<Reporter> reporter_;
  const Render render_;
  const Deliver deliver_;
  const size_t most_;
  mutable std::mutex mutex_; /* guards all below, and is never held while a batch is delivered */
  std::condition_variable work_;
  Batch waiting_, under_way_; /* under way, but without events: they were given up */
  Outcome failure_;           /* of the batch under way, until poll() has reported it */
  bool failed_ = false, ending_ = false;
  std::thread thread_; /* last: it uses all above */
};

}  // namespace outbox
