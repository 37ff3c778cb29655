/* webhook_fixture.h: a webhook sink without the engine, and a reporter that records. */
#pragma once

#include <atomic>
#include <chrono>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "delivery/engine/sink.h"
#include "fault_server.h"
#include "patience.h"

namespace outbox {

inline ob_text text(std::string_view value) {
  return {value.data(), value.size()};
}

/* State that a test and its peer's threads share. */
template <typename Value> class Shared {
public:
  Shared() = default;
  explicit Shared(Value value) : value_(std::move(value)) {}
  Value get() const {
    std::lock_guard lock(mutex_);
    return value_;
  }
  void set(Value value) {
    std::lock_guard lock(mutex_);
    value_ = std::move(value);
  }

private:
  mutable std::mutex mutex_;
  Value value_;
};

/* An event that owns its text. */
struct TestEvent {
  std::string payload = "{\"n\": 1}";
  std::vector<std::pair<std::string, std::string>> headers;
  std::vector<ob_header> raw_headers;
  ob_event event{};

  explicit TestEvent(uint64_t ticket, uint64_t key = 0, std::string payload_ = "{\"n\": 1}")
      : payload(std::move(payload_)) {
    event.ticket = ticket;
    event.key_hash = key;
    event.position = static_cast<int64_t>(ticket);
    event.created_at_us = 1714564800007000;
    memcpy(event.id, &ticket, sizeof(ticket));
    event.aggregate_type = text("Order");
    event.event_type = text("order.created");
    event.attempt = 1;
  }
  const ob_event &get() {
    event.payload = text(payload);
    raw_headers.clear();
    for (auto &[name, value] : headers)
      raw_headers.push_back({text(name), text(value), false});
    event.headers = raw_headers.data();
    event.n_headers = raw_headers.size();
    return event;
  }
};

class RecordingReporter : public Reporter {
public:
  RecordingReporter() : fd_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {}
  ~RecordingReporter() override { close(fd_); }
  void complete(Completion completion) override { complete(std::vector<Completion>{std::move(completion)}); }
  void complete(std::vector<Completion> completions) override {
    std::lock_guard lock(mutex_);
    for (Completion &completion : completions)
      completions_.push_back(std::move(completion));
    wake();
  }
  void sent(std::vector<uint64_t> tickets) override {
    for (uint64_t ticket : tickets)
      complete(Completion{{Outcome::Sent}, ticket, 0});
  }
  void down(std::string, ob_reason) override {}
  void up() override {}
  void failed(ob_reason, size_t unanswered) override { unanswered_ += unanswered; }
  size_t unanswered() const { return unanswered_; } /* as failed() was told */
  void degraded(std::string) override {}
  void resumed(std::string) override {}
  void disabled(std::string reason) override {
    std::lock_guard lock(mutex_);
    disabled_ = std::move(reason);
  }
  void log(ob_log_level, std::string) override {}
  void wake() override {
    uint64_t one = 1;
    (void)!write(fd_, &one, sizeof(one));
  }
  int wake_fd() const override { return fd_; }

  std::vector<Completion> completions() const {
    std::lock_guard lock(mutex_);
    return completions_;
  }
  std::string disabled_reason() const {
    std::lock_guard lock(mutex_);
    return disabled_;
  }

private:
  int fd_;
  mutable std::mutex mutex_;
  std::vector<Completion> completions_;
  std::string disabled_;
  std::atomic<size_t> unanswered_{0};
};

/* Waits for at least this many completions in total, polling when the descriptor is readable, as the engine does. */
inline std::vector<Completion> wait_for(Sink &sink, RecordingReporter &reporter, size_t n,
                                        std::chrono::seconds limit = std::chrono::seconds(60)) {
  auto end = patience_ends(limit);
  while (reporter.completions().size() < n && std::chrono::steady_clock::now() < end) {
    pollfd ready{reporter.wake_fd(), POLLIN, 0};
    ::poll(&ready, 1, 1000);
    uint64_t count;
    (void)!read(reporter.wake_fd(), &count, sizeof(count));
    sink.poll();
  }
  EXPECT_GE(reporter.completions().size(), n) << "too late";
  return reporter.completions();
}

/* Drives the sink as the engine does. */
class WebhookHarness {
public:
  explicit WebhookHarness(Options server, Options mapping = {}, const std::string &name = "crm") {
    const SinkKind *kind = SinkKind::find("webhook");
    config = kind->parse(server, &mapping);
    sink = kind->open(name, config, reporter);
  }
  static Options local(const std::string &url, Options more = {}) {
    more.insert({{"url", url}, {"allow_http", "true"}, {"allow_networks", "127.0.0.0/8"}});
    return more;
  }
  static Options local(const FaultServer &peer, Options more = {}) { return local(peer.url(), std::move(more)); }

  void submit(TestEvent event) { ASSERT_TRUE(sink->submit(event.get())); }
  /* Waits for at least this many completions in total. */
  std::vector<Completion> wait(size_t n, std::chrono::seconds limit = std::chrono::seconds(60)) {
    return wait_for(*sink, *reporter, n, limit);
  }
  /* Sends one event and waits for its end. */
  Completion send(TestEvent event) {
    size_t before = reporter->completions().size();
    submit(std::move(event));
    sink->flush();
    auto all = wait(before + 1);
    return all.size() > before ? all[before] : Completion{};
  }

  std::shared_ptr<RecordingReporter> reporter = std::make_shared<RecordingReporter>();
  std::shared_ptr<const SinkConfig> config;
  std::unique_ptr<Sink> sink;
};

}  // namespace outbox
