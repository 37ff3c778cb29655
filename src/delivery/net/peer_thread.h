/*
 * peer_thread.h: the thread of a sink that keeps one connection to its peer. It tries the hosts in turn, with a pause
 * that grows while none accepts, and waits for the connection's socket and the sink's queue together. peer_sender.h
 * adds what is common to all that send messages.
 *
 * The thread calls virtual functions: its owner starts it when the object is complete, and stops it before the object
 * is destroyed.
 */
#pragma once

#include <atomic>
#include <chrono>
#include <memory>
#include <string>
#include <thread>

#include "delivery/base/event_fd.h"
#include "delivery/engine/sink.h"
#include "delivery/net/peer_connection.h"

namespace outbox {

class PeerThread {
public:
  PeerThread(const PeerThread &) = delete;
  PeerThread &operator=(const PeerThread &) = delete;

  // ---- the main thread ----

  void launch();
  /* Waits for the thread, and so for a resolver. `wake` makes it look. */
  void shut_down(const EventFd &wake);

protected:
  using Clock = std::chrono::steady_clock;
  using Time = Clock::time_point;

  /* The options must outlive it. */
  PeerThread(const ConnectOptions &options, std::shared_ptr<Reporter> reporter)
      : reporter_(std::move(reporter)), options_(options) {}
  virtual ~PeerThread() = default;

  // ---- the thread ----

  /* Called again and again. Throws PeerError when the connection is lost, or none can be made. */
  virtual void run_once() = 0;
  /* The connection is of no use any more. */
  virtual void lose(const PeerError &error) = 0;

  /* Tries each host once, from the one that accepted last. Throws PeerError about all of them. */
  template <class Connection, class Options> std::unique_ptr<Connection> open(const Options &options);
  /* When connecting may be tried; the events of a circuit's probe need not wait for it. */
  Time connect_at() const { return connect_at_; }
  void connect_later();
  /* The next host is tried first: another one may be the right one now. */
  void next_host() { host_ = (host_ + 1) % options_.hosts.size(); }
  /* Why a part of the sink is down; empty: all parts work. With a warning in the log if it is new. */
  void report_problem(const std::string &problem);
  /* Waits until `at`, or until `wake` or the connection is ready; NULL: there is none. */
  static void wait_until(Time at, const EventFd &wake, const PeerConnection *connection);

  const std::shared_ptr<Reporter> reporter_;

private:
  void run();

  const ConnectOptions &options_;
  std::atomic<bool> ending_{false};
  size_t host_ = 0;     /* the first to try */
  std::string problem_; /* as last reported */
  Time connect_at_{};
  std::chrono::milliseconds backoff_{0};
  std::thread thread_;
};

template <class Connection, class Options> std::unique_ptr<Connection> PeerThread::open(const Options &options) {
  const auto &hosts = options_.hosts;
  std::string failures;
  ob_reason reason = OB_REASON_CONNECTION;
  for (size_t i = 0; i < hosts.size(); i++) {
    const Host &host = hosts[(host_ + i) % hosts.size()];
    try {
      auto connection = std::make_unique<Connection>(options);
      connection->open(host, Deadline(Clock::now() + options_.connect_timeout, [this] { return ending_.load(); }));
      host_ = (host_ + i) % hosts.size();
      backoff_ = std::chrono::milliseconds(0);
      return connection;
    } catch (const PeerError &error) {
      reason = error.reason;
      failures += (failures.empty() ? "" : "; ") + (hosts.size() == 1 ? "" : host.text() + ": ") + error.text();
    }
  }
  throw PeerError("connect", reason, failures);
}

}  // namespace outbox
