/*
 * peer_thread.h: the thread of a sink that keeps one connection to its peer. It tries the hosts in turn, with a pause
 * that grows while none accepts, and waits for the connection's socket and the sink's queue together. A kind of
 * sink derives from it and says what is sent and read.
 *
 * The derived class starts the thread at the end of its constructor, and stops it at the beginning of its destructor:
 * the thread calls its virtual functions.
 */
#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <thread>

#include "delivery/base/event_fd.h"
#include "delivery/engine/send_queue.h"
#include "delivery/engine/refused_targets.h"
#include "delivery/engine/sink.h"
#include "delivery/net/peer_connection.h"

namespace outbox {

class PeerThread {
public:
  PeerThread(const PeerThread &) = delete;
  PeerThread &operator=(const PeerThread &) = delete;

protected:
  using Clock = std::chrono::steady_clock;
  using Time = Clock::time_point;

  /* The options must outlive it. */
  PeerThread(const ConnectOptions &options, std::shared_ptr<Reporter> reporter)
      : reporter_(std::move(reporter)), options_(options) {}
  virtual ~PeerThread() = default;

  // ---- the main thread ----

  void launch();
  /* Waits for the thread, and so for a resolver. `wake` makes it look. */
  void shut_down(const EventFd &wake);

  // ---- the thread ----

  /* Called again and again. Throws PeerError when the connection is lost, or none can be made. */
  virtual void run_once() = 0;
  /* The connection is of no use any more. */
  virtual void lose(const PeerError &error) = 0;

  /* Tries each host once, from the one that accepted last. Throws PeerError about all of them. */
  template <class Connection, class Options> std::unique_ptr<Connection> open(const Options &options) {
    std::unique_ptr<Connection> opened;
    try_hosts([&](const Host &host, const Deadline &deadline) {
      auto connection = std::make_unique<Connection>(options);
      connection->open(host, deadline);
      opened = std::move(connection);
    });
    return opened;
  }
  /* When connecting may be tried; the events of a circuit's probe need not wait for it. */
  Time connect_at() const { return connect_at_; }
  void connect_later();
  /* The next host is tried first: another one may be the right one now. */
  void next_host() { host_ = (host_ + 1) % options_.hosts.size(); }
  void report_down(const std::string &why, ob_reason reason);
  /* Has no effect after a loss with messages in flight, until the peer acknowledges one: a peer that takes every
   * login and no message is down. The circuit's probes go on meanwhile. */
  void report_up();
  /* For lose(): returns the messages, and reports the loss unless one of them is to blame. */
  template <class Message> void return_all(SendQueue<Message> &queue, const PeerError &error);
  /* The peer has stored these; clears them. */
  template <class Message> void succeed(SendQueue<Message> &queue, std::vector<uint64_t> &serials);
  /* Why a part of the sink is down; empty: all parts work. Returns whether that is new, and was reported. */
  bool report_degraded(std::string problem);
  /* The same, with a warning in the log. */
  void warn_degraded(const std::string &problem);
  /* Tells what RefusedTargets::look() has found. `about` gives the start of all texts about a target, `any` is how
   * each of these begins, and `again` is what a healthy target does. Returns whether the summary may be another one.
   */
  bool report_targets(const RefusedTargets::News &news, const std::function<std::string(const std::string &)> &about,
                      const char *any, const char *again);
  /* Waits until `at`, or until `wake` or the connection is ready; NULL: there is none. */
  static void wait_until(Time at, const EventFd &wake, const PeerConnection *connection);

  const std::shared_ptr<Reporter> reporter_;

private:
  template <class Open> void try_hosts(Open open);
  void run();

  const ConnectOptions &options_;
  std::atomic<bool> ending_{false};
  size_t host_ = 0; /* the first to try */
  bool down_ = false;
  bool doubted_ = false; /* the last connections with messages in flight were lost without an acknowledgement */
  std::string degraded_; /* as last reported */
  Time connect_at_{};
  std::chrono::milliseconds backoff_{0};
  std::thread thread_;
};

template <class Message> void PeerThread::return_all(SendQueue<Message> &queue, const PeerError &error) {
  const std::string why = error.text();
  doubted_ = doubted_ || queue.running() > 0;
  if (!queue.lost(why, error.reason))
    report_down(why, error.reason);
}

template <class Message> void PeerThread::succeed(SendQueue<Message> &queue, std::vector<uint64_t> &serials) {
  if (serials.empty())
    return;
  queue.succeed(serials);
  serials.clear();
  doubted_ = false;
  report_up();
}

template <class Open> void PeerThread::try_hosts(Open open) {
  const auto &hosts = options_.hosts;
  std::string failures;
  ob_reason reason = OB_REASON_CONNECTION;
  for (size_t i = 0; i < hosts.size(); i++) {
    size_t at = (host_ + i) % hosts.size();
    try {
      open(hosts[at], Deadline(Clock::now() + options_.connect_timeout, [this] { return ending_.load(); }));
      host_ = at;
      backoff_ = std::chrono::milliseconds(0);
      return;
    } catch (const PeerError &error) {
      reason = error.reason;
      failures += (failures.empty() ? "" : "; ") + (hosts.size() == 1 ? "" : hosts[at].text() + ": ") + error.text();
    }
  }
  throw PeerError("connect", reason, failures);
}

}  // namespace outbox
