/*
 * connection.cpp: HELLO logs in, and tells version, role and mode, whatever rights the user has. A replica refuses
 * entries, or, if it is writable, loses them at its next synchronisation; so it is left before the first one. PING,
 * other than HELLO and SELECT, is refused while the server loads its data or cannot write to its disk.
 */
#include "connection.h"

#include <algorithm>

#include "delivery/base/clean_text.h"
#include "server_errors.h"

namespace outbox::redis {

static PeerError refused(const char *step, const std::string &what, const redisReply &reply) {
  ServerError error = read_error(text_of(reply));
  return {step, error.reason, what + ": " + error.text};
}

PeerError Connection::not_understood(const char *step, const char *command, const redisReply &reply) const {
  return {step, OB_REASON_BROKER, peer() + " answers " + command + " with " + kind_of(reply),
          "is this a Redis server, or something between that changes its replies?"};
}

Reply Connection::next() {
  try {
    return reader_.next();
  } catch (const NotRedis &error) {
    throw PeerError("login", OB_REASON_CONNECTION, peer() + ": " + error.what(),
                    "is this the port of a Redis server, and does it want TLS?");
  }
}

Reply Connection::ask(const Command &command, const Deadline &deadline, const char *step) {
  Reply reply;
  out_ += command.bytes();
  wait_for(reader_, deadline, step, [&] { return static_cast<bool>(reply = next()); });
  return reply;
}

void Connection::connect(const Host &host, const Deadline &deadline) {
  transport_.resolve(host);
  transport_.connect(deadline);
  passed("connect", peer() + " accepts the connection");
}

void Connection::read_hello(const redisReply &hello) {
  std::string name, version;
  for (size_t i = 0; i + 1 < hello.elements; i += 2) {
    std::string_view key = text_of(*hello.element[i]);
    std::string_view value = text_of(*hello.element[i + 1]);
    if (key == "server")
      name = value;
    else if (key == "version")
      version = value;
    else if (key == "mode")
      mode_ = value;
    else if (key == "role")
      role_ = value;
  }
  product_ = peer_text(name + " " + version);
}

void Connection::log_in(const Deadline &deadline) {
  std::vector<std::string_view> hello{"HELLO", "2"};
  if (!options_.password.empty())
    hello.insert(hello.end(), {"AUTH", options_.user, options_.password});
  hello.insert(hello.end(), {"SETNAME", "outbox"});
  Reply reply = ask(hello, deadline, "login");
  if (is_error(*reply))
    throw refused("login",
                  options_.password.empty() ? "the server refuses a login without a password"
                                            : "the login of user \"" + clean_text(options_.user) + "\" was refused",
                  *reply);
  if (reply->type != REDIS_REPLY_ARRAY)
    throw not_understood("login", "HELLO", *reply);
  read_hello(*reply);
  passed("login", product_ + (options_.user.empty() ? " asks for no password"
                                                    : " accepts user \"" + clean_text(options_.user) + "\""));
}

void Connection::check_role() {
  if (mode_ == "cluster")
    throw PeerError("role", OB_REASON_BROKER, peer() + " is a node of a Redis Cluster",
                    "cluster mode is not supported: name a server without it in option hosts");
  if (mode_ == "sentinel")
    throw PeerError("role", OB_REASON_BROKER, peer() + " is a Sentinel",
                    "name the Redis servers themselves in option hosts; the sink finds the master among them");
  if (role_ == "replica")
    throw PeerError("role", OB_REASON_BROKER, peer() + " is a replica",
                    "option hosts must also name the master; if that is gone, promote a replica");
  passed("role", peer() + " is a master");
}

void Connection::select_database(const Deadline &deadline) {
  if (options_.database == 0)
    return;
  std::string number = std::to_string(options_.database);
  Reply reply = ask({"SELECT", number}, deadline, "database");
  if (is_error(*reply))
    throw refused("database", "database " + number + " cannot be used", *reply);
  if (!is_status(*reply, "OK"))
    throw not_understood("database", "SELECT", *reply);
}

void Connection::check_ready(const Deadline &deadline) {
  Reply reply = ask({"PING"}, deadline, "ready");
  if (is_error(*reply) && !text_of(*reply).starts_with("NOPERM")) /* entries show whether it is ready */
    throw refused("ready", "the server is not ready", *reply);
  if (!is_error(*reply) && !is_status(*reply, "PONG"))
    throw not_understood("ready", "PING", *reply);
  if (options_.wait_replicas == 0)
    return;
  reply = ask({"WAIT", "0", "1"}, deadline, "ready");
  if (is_error(*reply)) /* after an entry it would double the entry at each try */
    throw refused("ready", "WAIT is refused", *reply);
  if (!number_of(*reply))
    throw not_understood("ready", "WAIT", *reply);
}

void Connection::open(const Host &host, const Deadline &deadline) {
  connect(host, deadline);
  if (options_.tls)
    start_tls(deadline);
  log_in(deadline);
  check_role();
  select_database(deadline);
  check_ready(deadline);
  passed("ready", "database " + std::to_string(options_.database) + " can be used");
}

}  // namespace outbox::redis
