/*
 * transport.h: a connection to a peer as a stream of bytes, with or without TLS. After open(), no function waits:
 * the owner waits for fd() together with what else it waits for. Belongs to one thread.
 */
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "delivery/net/connect_options.h"
#include "delivery/net/tls.h"
#include "delivery/net/peer_error.h"

namespace outbox {

/* A limit for everything that waits for a peer. */
class Deadline {
public:
  using Clock = std::chrono::steady_clock;
  Deadline(Clock::time_point deadline, std::function<bool()> cancelled)
      : deadline_(deadline), cancelled_(std::move(cancelled)) {}
  /* Throws PeerError("no answer in time") about `step` of a connected peer if it is over, or Cancelled. A loop that
   * reads calls it each time: a peer that never stops sending never makes it wait. */
  void check(const char *step, const std::string &peer) const;
  /* Waits for the events of poll(). Throws as check() does. */
  void wait(int fd, short events, const char *step, const std::string &peer) const;
  /* Returns false when it is over, and throws Cancelled. */
  bool wait_ready(int fd, short events) const;

private:
  Clock::time_point deadline_;
  std::function<bool()> cancelled_;
};

class Transport {
public:
  /* The options must outlive it. */
  explicit Transport(const ConnectOptions &options) : options_(options) {}
  ~Transport();
  Transport(const Transport &) = delete;
  Transport &operator=(const Transport &) = delete;

  /* The steps of connecting, in order. They wait, and throw PeerError. */
  void resolve(const Host &host);
  void connect(const Deadline &deadline);
  void start_tls(const Deadline &deadline);

  int fd() const { return fd_; }
  /* The events to wait for: POLLIN, and POLLOUT if send() could not send all, or TLS needs it. */
  short events(bool unsent) const;
  /* Both return the number of bytes, 0 if the socket would block, and throw PeerError when the connection is lost. */
  size_t receive(char *into, size_t room);
  size_t send(std::string_view bytes);
  /* Bytes that were sent and that the peer's machine has not acknowledged. */
  size_t queued() const;
  /* "broker.example port 5672", as the options name it: no text says to which address a name resolves. */
  const std::string &peer() const { return peer_; }

private:
  struct Addresses;
  size_t tls_result(int result);
  PeerError lost(const std::string &why = {}) const;
  std::optional<Refusal> refused(const void *address) const;
  void connect_to(const void *address, const Deadline &deadline);

  const ConnectOptions &options_;
  Host host_;
  std::shared_ptr<Addresses> addresses_;
  std::string peer_;
  int fd_ = -1;
  std::unique_ptr<Tls> tls_;
  bool tls_wants_write_ = false;
  bool heard_ = false; /* the peer has sent something */
};

}  // namespace outbox
