/*
 * connection.cpp: the server speaks first, unencrypted: its INFO says whether TLS follows. It closes a connection
 * whose login it does not accept, after it has said why; the PONG to a first PING shows that it has accepted.
 *
 * The client library of NATS is not used, because its TLS handshake has no time limit: a server that hangs there
 * would hold the sink's thread, and with it the end of the worker, for ever.
 */
#include "connection.h"

#include <openssl/rand.h>

#include <charconv>

#include "delivery/base/clean_text.h"
#include "delivery/base/uuid.h"
#include "delivery/formats/json_text.h"

namespace outbox::nats {
namespace {

bool mentions(std::string_view text, std::string_view words) {
  return text.find(words) != text.npos;
}

std::string new_inbox(const std::string &prefix) {
  uint8_t random[16];
  if (RAND_bytes(random, sizeof random) != 1)
    throw std::runtime_error("no random number for an inbox");
  std::string inbox = prefix + ".";
  for (uint8_t byte : random)
    inbox.append(&hex_pairs[2 * size_t(byte)], 2);
  return inbox + ".";
}

}  // namespace

bool is_permission_error(std::string_view error) {
  return error.starts_with("Permissions Violation");
}

std::string Connection::product() const {
  return "nats-server " + peer_text(info_.version);
}

bool Connection::next(Operation &operation) {
  try {
    if (!reader_.next(operation))
      return false;
    if (operation.kind == Operation::Kind::Info) {
      info_ = ServerInfo::parse(operation.text);
      take_limits();
    }
  } catch (const NotNats &error) {
    throw PeerError("connect", OB_REASON_CONNECTION, peer() + ": " + error.what(),
                    "is this the port of a NATS server for clients?");
  }
  if (operation.kind == Operation::Kind::Ping)
    answer("PONG\r\n");
  else if (operation.kind == Operation::Kind::Error && (!logged_in_ || !is_permission_error(operation.text)))
    throw refused(operation.text);
  return true;
}

/* An event that is larger than the limit becomes a dead letter, so not everybody may say one. The first INFO is not
 * encrypted: with TLS it is anybody's, and a server that sends no other closes the connection at a message that is
 * too large. */
void Connection::take_limits() {
  constexpr size_t least = 1024; /* of option max_message */
  if (info_.max_payload == 0 || (options_.tls && !encrypted_))
    return;
  if (info_.max_payload < least)
    throw PeerError("connect", OB_REASON_BROKER,
                    "the server takes messages of at most " + std::to_string(info_.max_payload) + " bytes",
                    "raise max_payload of the server to " + std::to_string(least) + " or more");
  max_payload_ = info_.max_payload;
}

Operation Connection::wait_next(const Deadline &deadline, const char *step) {
  Operation operation;
  wait_for(reader_, deadline, step, [&] { return next(operation); });
  return operation;
}

uint64_t Connection::number_of(std::string_view subject) const {
  uint64_t number = 0;
  if (!subject.starts_with(inbox_))
    return 0;
  subject.remove_prefix(inbox_.size());
  auto [end, error] = std::from_chars(subject.data(), subject.data() + subject.size(), number);
  return error == std::errc() && end == subject.data() + subject.size() ? number : 0;
}

/* The meaning of the server's error for the connection. */
PeerError Connection::refused(std::string_view error) const {
  const std::string said = in_quotes(error);
  if (is_permission_error(error))
    return {"login", OB_REASON_AUTH, "the server refuses " + options_.who() + " its inbox: " + said,
            "allow the user to subscribe to " + options_.inbox_prefix + ".>, or set option inbox_prefix"};
  if (mentions(error, "Expired") || mentions(error, "Revoked"))
    return {"login", OB_REASON_AUTH, "the server ends the login of " + options_.who() + ": " + said,
            "give the user mapping new credentials"};
  if (mentions(error, "Authorization") || mentions(error, "Authentication"))
    return {"login", OB_REASON_AUTH, "the server does not accept " + options_.who() + ": " + said,
            "look at the user mapping: user and password, token or credentials"};
  if (mentions(error, "TLS Required"))
    return {"TLS", OB_REASON_TLS, "the server takes connections with TLS only", "set option tls 'true'"};
  return {"connect", OB_REASON_BROKER, "the server closed the connection: " + said};
}

void Connection::connect(const Host &host, const Deadline &deadline) {
  transport_.resolve(host);
  transport_.connect(deadline);
  if (wait_next(deadline, "connect").kind != Operation::Kind::Info)
    throw PeerError("connect", OB_REASON_CONNECTION, peer() + " does not begin as a NATS server does");
  if (!info_.headers)
    throw PeerError("connect", OB_REASON_BROKER, "the server knows no headers",
                    "use nats-server 2.2 or later, without no_header_support");
  if (info_.tls_required && !options_.tls)
    throw PeerError("TLS", OB_REASON_TLS, "the server takes connections with TLS only", "set option tls 'true'");
  passed("connect", peer() + " is " + product());
}

void Connection::start_tls(const Deadline &deadline) {
  if (!info_.tls_required && !info_.tls_available)
    throw PeerError("TLS", OB_REASON_TLS, "the server " + peer() + " offers no TLS",
                    "configure it there, or use another port");
  if (!reader_.empty()) /* unencrypted bytes must not be taken for what follows encrypted */
    throw PeerError("TLS", OB_REASON_TLS, "the server " + peer() + " sends more before TLS than its INFO");
  PeerConnection::start_tls(deadline);
  encrypted_ = true;
}

std::string Connection::connect_text() const {
  std::string text =
      R"(CONNECT {"verbose":false,"pedantic":false,"lang":"c++","version":"1","protocol":1,"echo":false)"
      R"(,"headers":true,"no_responders":true,"name":"outbox","tls_required":)";
  text += options_.tls ? "true" : "false";
  auto add = [&text](const char *name, const std::string &value) {
    if (value.empty())
      return;
    ((text += ",\"") += name) += "\":";
    append_json_string(value, text);
  };
  add("user", options_.user);
  add("pass", options_.password);
  add("auth_token", options_.token);
  add("jwt", options_.credentials ? options_.credentials->jwt : std::string());
  if (options_.credentials && !info_.nonce.empty()) {
    if (options_.credentials->jwt.empty())
      add("nkey", options_.credentials->nkey.public_key());
    add("sig", options_.credentials->nkey.sign(info_.nonce));
  }
  return text + "}\r\n";
}

void Connection::log_in(const Deadline &deadline) {
  inbox_ = new_inbox(options_.inbox_prefix);
  out_ += connect_text();
  ((out_ += "SUB ") += inbox_) += "* 1\r\nPING\r\n";
  try {
    while (wait_next(deadline, "login").kind != Operation::Kind::Pong)
      ;
  } catch (const PeerError &lost) {
    if (lost.reason != OB_REASON_CONNECTION)
      throw;
    throw PeerError("login", OB_REASON_AUTH, "the server hung up at the login of " + options_.who(),
                    "look at the user mapping, and at the server's log");
  }
  logged_in_ = true;
  passed("login", "the server accepts " + options_.who());
}

void Connection::open(const Host &host, const Deadline &deadline) {
  connect(host, deadline);
  if (options_.tls)
    start_tls(deadline);
  log_in(deadline);
}

}  // namespace outbox::nats
