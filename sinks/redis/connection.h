/*
 * connection.h: a connection to a master that is logged in. Commands go into out(), next() gives the replies in the
 * order of the commands. Belongs to one thread.
 */
#pragma once

#include <string>

#include "command.h"
#include "delivery/net/peer_connection.h"
#include "redis_options.h"

namespace outbox::redis {

class Connection final : public PeerConnection {
public:
  explicit Connection(const RedisOptions &options) : PeerConnection(options), options_(options) {}

  /* Connects, logs in, and sees whether entries may be added. Waits, and throws PeerError or Cancelled. */
  void open(const Host &host, const Deadline &deadline);

  const std::string &product() const { return product_; } /* "redis 7.0.15" */

  /* Reads once what the socket has. Returns false if that was nothing. */
  bool receive() { return receive_into(reader_); }
  Reply next(); /* null if none is complete */
  /* Sends a command and waits for its reply; no other may be on its way. */
  Reply ask(const Command &command, const Deadline &deadline, const char *step);

private:
  void connect(const Host &host, const Deadline &deadline);
  void log_in(const Deadline &deadline);
  void check_role(); /* after log_in() */
  void select_database(const Deadline &deadline);
  void check_ready(const Deadline &deadline);
  void read_hello(const redisReply &hello);
  PeerError not_understood(const char *step, const char *command, const redisReply &reply) const;

  const RedisOptions &options_;
  ReplyReader reader_;
  std::string product_, mode_, role_;
};

}  // namespace outbox::redis
