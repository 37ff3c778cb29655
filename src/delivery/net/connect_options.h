/*
 * connect_options.h: the options that say how to reach a peer by TCP, with or without TLS. Kinds of sink that speak a
 * protocol of their own have them, and add `hosts` with words of their own.
 */
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "delivery/engine/advice.h"
#include "delivery/net/broker_guard.h"
#include "delivery/options/options.h"

namespace outbox {

inline constexpr OptionName HOSTS{"hosts"}, CONNECT_TIMEOUT{"connect_timeout"}, TLS{"tls"}, SSL_CA_PEM{"ssl_ca_pem"},
    ENABLE_SSL_CERTIFICATE_VERIFICATION{"enable_ssl_certificate_verification"};

struct Host {
  std::string name;
  std::string port; /* a number */
  std::string text() const { return (name.find(':') == name.npos ? name : "[" + name + "]") + ":" + port; }
};

/* How texts name the peer, and its usual ports. */
struct PeerWords {
  const char *noun; /* "broker", "server" */
  const char *port, *tls_port;
};

/* Immutable once it is parsed. */
struct ConnectOptions {
  PeerWords words{"peer", "", ""};
  std::vector<Host> hosts;
  bool tls = false, verify = true;
  std::string ca_pem, certificate_pem, key_pem; /* the key is not encrypted */
  std::chrono::milliseconds connect_timeout{10'000};
  std::optional<BrokerGuard> guard = {}; /* nothing: every address may be connected to */

  /* All but `hosts`. */
  static const std::vector<OptionSpec> &specs();
  /* `mapping` may be null. Throws BadInput; hosts must be given. */
  static ConnectOptions parse(const PeerWords &words, const Options &server, const Options *mapping, Owner owner);
  /* The combinations of certificate, key and password. Throws BadInput. */
  static void check_mapping(const Options &mapping);
  bool leaves_this_machine() const;
  std::vector<Advice> advise(const Options &server) const;
};

/* host, host:port, or [v6 address]:port, separated by commas. Throws BadInput. */
std::vector<Host> parse_hosts(const std::string &name, const std::string &value, const char *default_port);
/* For an OptionSpec. */
void check_hosts(const std::string &name, const std::string &value);

}  // namespace outbox
