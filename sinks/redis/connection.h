/*
 * connection.h: a connection to a master that is logged in. Commands go into out(), next() gives the replies in the
 * order of the commands. Belongs to one thread.
 */
#pragma once

#include <string>

#include "command.h"
#include "delivery/net/transport.h"
#include "redis_options.h"

namespace outbox::redis {

class Connection {
public:
  explicit Connection(const Connecting &options) : options_(options), transport_(options) {}

  /* The steps, in order, for a probe that reports each of them. They wait, and throw Trouble or Cancelled. */
  void connect(const Host &host, const Patience &patience);
  void start_tls(const Patience &patience);
  void log_in(const Patience &patience);
  void check_role() const; /* after log_in() */
  void select_database(const Patience &patience);
  void check_ready(const Patience &patience);
  /* All of them. */
  void open(const Host &host, const Patience &patience);

  const std::string &peer() const { return transport_.peer(); }
  const std::string &product() const { return product_; } /* "redis 7.0.15" */

  std::string &out() { return out_; }
  size_t unsent() const { return out_.size() - sent_; }
  size_t queued() const { return transport_.queued(); } /* in the socket */
  /* Sends what the socket takes. Returns whether that was anything. */
  bool flush();
  /* Reads once what the socket has. Returns false if that was nothing. */
  bool receive();
  Reply next(); /* null if none is complete */
  int fd() const { return transport_.fd(); }
  short events() const { return transport_.events(unsent() > 0); }
  /* Sends a command and waits for its reply; no other may be on its way. */
  Reply ask(const Command &command, const Patience &patience, const char *step);

private:
  void read_hello(const redisReply &hello);

  const Connecting &options_;
  Transport transport_;
  ReplyReader reader_;
  std::string out_;
  size_t sent_ = 0; /* of out_ */
  std::string buffer_;
  std::string product_, mode_, role_;
};

}  // namespace outbox::redis
