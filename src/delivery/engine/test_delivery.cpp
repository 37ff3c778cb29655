/*
 * test_delivery.cpp: the thread of the probe plays the part of the main thread for this one sink. There is no circuit
 * breaker and no retry, so that the probe tells what the peer says to the first try; only an event that was returned
 * or deferred, as after a kept connection that was closed, is tried a second time.
 */
#include "delivery/engine/test_delivery.h"

#include <poll.h>

#include <mutex>

#include "delivery/base/event_fd.h"
#include "delivery/engine/test_event.h"

namespace outbox {
namespace {

constexpr uint64_t ticket = 1;

/* What a sink reports that has one event at most. */
class TestReporter final : public Reporter {
public:
  void complete(Completion completion) override {
    {
      std::lock_guard lock(mutex_);
      ended_ = std::move(completion);
    }
    wake();
  }
  void complete(std::vector<Completion> completions) override {
    for (Completion &completion : completions)
      complete(std::move(completion));
  }
  void sent(std::vector<uint64_t> tickets) override {
    if (tickets.empty())
      return;
    Completion completion;
    completion.outcome = Outcome::Sent;
    complete(std::move(completion));
  }
  void down(std::string text, ob_reason /*reason*/) override { trouble(std::move(text)); }
  void up() override { trouble({}); }
  void failed(ob_reason /*reason*/, size_t /*unanswered*/) override {}
  void degraded(std::string reason) override { trouble(std::move(reason)); }
  void resumed(std::string /*error*/) override {}
  void disabled(std::string reason) override { trouble(std::move(reason)); }
  void log(ob_log_level /*level*/, std::string /*text*/) override {}
  void wake() override { event_.wake(); }
  int wake_fd() const override { return event_.fd(); }

  /* Waits for any of the above, but not for long. */
  void wait() const {
    pollfd ready{event_.fd(), POLLIN, 0};
    if (poll(&ready, 1, static_cast<int>(Probe::slice.count())) > 0)
      event_.clear();
  }
  std::optional<Completion> take() {
    std::lock_guard lock(mutex_);
    return std::exchange(ended_, {});
  }
  /* Why the sink or a part of it is down; empty if it is not. */
  std::string trouble() const {
    std::lock_guard lock(mutex_);
    return trouble_;
  }

private:
  void trouble(std::string text) {
    std::lock_guard lock(mutex_);
    trouble_ = std::move(text);
  }

  mutable std::mutex mutex_; /* guards ended_ and trouble_ */
  std::optional<Completion> ended_;
  std::string trouble_;
  const EventFd event_;
};

/* With raw bytes where the kind takes no JSON: no bytes are a message of any type, with all its defaults. Throws
 * BadInput if the sink can send neither. */
void fit(const SinkConfig &config, ob_event &event) {
  try {
    config.check_event(event);
  } catch (const BadInput &) {
    ob_event bytes = event;
    bytes.payload = {"", 0};
    bytes.payload_is_bytes = true;
    try {
      config.check_event(bytes);
    } catch (const BadInput &) {
      config.check_event(event); /* says why */
    }
    event = bytes;
  }
}

/* Returns nothing if the time is up. */
std::optional<Completion> deliver(Sink &sink, TestReporter &reporter, const ob_event &event, const Probe &probe) {
  bool submitted = false, tried_again = false;
  while (!probe.over()) {
    std::optional<Completion> ended;
    if (!submitted && sink.credit() > 0) {
      Submitted result = sink.submit(event);
      submitted = static_cast<bool>(result);
      ended = std::move(result.ended());
      sink.flush();
    }
    sink.poll();
    if (!ended)
      ended = reporter.take();
    const bool again =
        ended && !tried_again && (ended->outcome == Outcome::Returned || ended->outcome == Outcome::Deferred);
    if (ended && !again)
      return ended;
    if (again) {
      tried_again = true;
      submitted = false;
    } else {
      reporter.wait();
    }
  }
  return {};
}

}  // namespace

std::shared_ptr<void> deliver_test_event(const SinkKind &kind, std::shared_ptr<const SinkConfig> config,
                                         Probe &probe) {
  TestEvent test;
  auto reporter = std::make_shared<TestReporter>();
  std::shared_ptr<Sink> sink;
  std::optional<Completion> ended;
  test.event.ticket = ticket;
  try {
    fit(*config, test.event);
    sink = kind.open(probe.sink(), std::move(config), reporter);
    sink->keep_acknowledgements(true);
    ended = deliver(*sink, *reporter, test.event, probe);
  } catch (const BadInput &bad) {
    probe.failed("send", "a test event cannot be sent: " + std::string(bad.what()),
                 "An option is made of values that a test event does not have.");
    return sink;
  }
  const std::string trouble = reporter->trouble();
  if (!ended)
    probe.failed("send", trouble.empty() ? "no answer in time" : trouble);
  else if (ended->outcome != Outcome::Sent)
    probe.failed("send", ended->outcome == Outcome::Returned && !trouble.empty() ? trouble : ended->error,
                 ended->hint);
  else
    probe.passed("send", "a test event of type " + std::string(TestEvent::type) + " is delivered" +
                             (ended->acknowledgement.empty() ? "" : ": " + ended->acknowledgement));
  sink->release_queued();
  sink->abandon();
  return sink;
}

}  // namespace outbox
