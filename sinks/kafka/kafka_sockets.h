/*
 * kafka_sockets.h: the sockets of a librdkafka client. The network guard looks at each address before it is connected
 * to. A client that ends hangs up first: a thread of librdkafka reads for as long as its broker sends, and would not
 * see the end of the client before.
 */
#pragma once

#include <sys/socket.h>

#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <thread>

#include "delivery/net/broker_guard.h"

namespace outbox {

class KafkaSockets {
public:
  /* Nothing: all addresses are allowed. Call it before any other function. */
  void set_guard(std::optional<BrokerGuard> guard) { guard_ = std::move(guard); }
  /* For librdkafka's threads: connects, and returns an errno; closes. */
  int connect(int socket, const sockaddr *address, int size, const char *broker) noexcept;
  int close(int socket) noexcept;
  /* Ends all connections, and refuses new ones. Any thread. */
  void hang_up() noexcept;
  /* Called on a broker's thread, for an answer that belongs to no request. librdkafka reads while there is something
   * to read, so it would use a whole processor for a broker that goes on like this, and send nothing to it. Ends the
   * connection after a thousand, and returns true. */
  bool on_stray_answer() noexcept;
  /* Why the guard has refused the address of the broker that the text names; empty: it has not. Any thread. */
  std::string why_refused(std::string_view text) const;

private:
  std::optional<BrokerGuard> guard_;
  struct Connection {
    std::thread::id thread; /* of its broker, which has one at a time */
    unsigned stray_answers = 0;
  };
  mutable std::mutex mutex_;       /* guards the rest */
  std::map<int, Connection> open_; /* by the socket, from connect() to close(): no other file can have its number */
  bool hung_up_ = false;
  std::map<std::string, Refusal> refusals_; /* by the broker's host:port */
};

}  // namespace outbox
