/*
 * connection.h: a connection that is logged in, with an inbox in which acknowledgements arrive. Operations go into
 * out(), next() gives those of the server. Belongs to one thread.
 */
#pragma once

#include <cstdint>
#include <string>

#include "delivery/net/peer_connection.h"
#include "nats_options.h"
#include "protocol.h"

namespace outbox::nats {

class Connection final : public PeerConnection {
public:
  explicit Connection(const NatsOptions &options) : PeerConnection(options), options_(options) {}

  /* Connects and logs in. Waits, and throws PeerError or Cancelled. */
  void open(const Host &host, const Deadline &deadline);

  std::string product() const; /* "nats-server 2.9.10" */
  /* The largest message that the server takes; SIZE_MAX: it has not said so. */
  size_t max_payload() const { return max_payload_; }

  /* The subject for the answer with this number, and the number of a message for such a subject; 0: another one. */
  std::string inbox(uint64_t number) const { return inbox_ + std::to_string(number); }
  uint64_t number_of(std::string_view subject) const;

  /* Reads once what the socket has. Returns false if that was nothing. */
  bool receive() { return receive_into(reader_); }
  /* The next operation; false if none is complete. It is valid until the next call. Answers a PING, takes notice of
   * an INFO, and throws PeerError for an error after which the server closes the connection. */
  bool next(Operation &operation);
  /* Waits for the next operation. */
  Operation wait_next(const Deadline &deadline, const char *step);

private:
  void connect(const Host &host, const Deadline &deadline); /* until the server has introduced itself */
  void start_tls(const Deadline &deadline);
  void log_in(const Deadline &deadline);
  void take_limits();
  std::string connect_text() const;
  PeerError refused(std::string_view error) const;

  const NatsOptions &options_;
  OperationReader reader_;
  ServerInfo info_;
  std::string inbox_; /* with a dot at its end */
  size_t max_payload_ = SIZE_MAX;
  bool encrypted_ = false, logged_in_ = false;
};

/* An error after which the server keeps the connection open. */
bool is_permission_error(std::string_view error);

}  // namespace outbox::nats
