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
#include "delivery/options/pem.h"
#include "delivery/options/options.h"

namespace outbox {

inline constexpr OptionName HOSTS{"hosts"}, TLS{"tls"}, SSL_CA_PEM{"ssl_ca_pem"},
    ENABLE_SSL_CERTIFICATE_VERIFICATION{"enable_ssl_certificate_verification"};

struct Host {
  std::string name;
  std::string port; /* a number */
  std::string text() const { return (name.find(':') == name.npos ? name : "[" + name + "]") + ":" + port; }
};

/* How texts name the peer and what it does, and its usual ports. */
struct PeerTexts {
  const char *noun; /* "broker", "server" */
  const char *port, *tls_port;
  const char *answered;     /* "confirmed" */
  const char *message;      /* "message": what it answers */
  const char *any_target;   /* how each text about a target of messages begins: "stream " */
  const char *target_works; /* of a target that was refused: "can be written" */
};

/* Immutable once it is parsed. */
struct ConnectOptions : ClientCertificate {
  explicit ConnectOptions(const PeerTexts &of = {}) : words(of) {}

  PeerTexts words;
  std::vector<Host> hosts;
  bool tls = false, verify = true;
  std::string ca_pem;
  std::vector<Network> networks; /* that a superuser allows */
  std::chrono::milliseconds connect_timeout{10'000};
  std::optional<BrokerGuard> guard = {}; /* nothing: every address may be connected to */

  /* All but `hosts`, of which a kind says more: row(HOSTS, &Config::hosts, parse_hosts, "..."). */
  static std::vector<Row<ConnectOptions>> rows();
  /* Both read the options of a kind, which derives from this: it has a table(), and check_server(server) and
   * check_mapping(mapping), which check together what the table has read. `mapping` may be null. Throw BadInput. */
  template <class Kind> static Kind parse(const Options &server, const Options *mapping, Owner owner);
  template <class Kind> static void read_mapping(const Options &mapping, Kind &made);
  /* Of check_mapping(): throws BadInput if the mapping has `with`, and not `name`. */
  void require_with(const Options &mapping, OptionName name, OptionName with) const;

  bool leaves_this_machine() const;
  std::vector<Advice> advise(const Options &server) const;

private:
  /* After the rows of the server were read: checks them together, and completes hosts and guard. Throws BadInput. */
  void complete_connection(const Options &server, Owner owner);
  void check_certificate_is_used() const; /* needs both */
};

/* host, host:port, or [v6 address]:port, separated by commas; without a port it is empty. Throws BadInput. */
std::vector<Host> parse_hosts(const std::string &name, const std::string &value);

template <class Kind> void ConnectOptions::read_mapping(const Options &mapping, Kind &made) {
  Kind::table().read(mapping, OB_USER_MAPPING, made);
  made.check_mapping(mapping);
  made.check_certificate();
}

template <class Kind> Kind ConnectOptions::parse(const Options &server, const Options *mapping, Owner owner) {
  Kind made;
  Kind::table().read(server, OB_SERVER, made);
  made.check_server(server);
  made.complete_connection(server, owner);
  if (mapping) {
    read_mapping(*mapping, made);
    made.check_certificate_is_used();
  }
  return made;
}

}  // namespace outbox
