/*
 * connect_options.cpp: hosts may be named by any owner of a sink, so no error text of a connection may contain what a
 * peer has answered, unless it speaks the sink's protocol.
 */
#include "delivery/net/connect_options.h"

#include <algorithm>
#include <charconv>

#include "delivery/base/text.h"
#include "delivery/options/pem.h"

namespace outbox {
namespace {

using std::chrono::milliseconds;

bool is_port(std::string_view text) {
  unsigned number = 0;
  auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc() && end == text.data() + text.size() && number >= 1 && number <= 65535;
}

/* host, host:port, v6 address in brackets with or without port. Returns false for anything else. */
bool parse_host(std::string_view text, const char *default_port, Host &host) {
  if (text.find_first_of(" \t/@,?#") != text.npos)
    return false;
  std::string_view port;
  if (text.starts_with('[')) {
    size_t end = text.find(']');
    if (end == text.npos)
      return false;
    host.name = text.substr(1, end - 1);
    port = text.substr(end + 1);
  } else {
    size_t colon = text.find(':');
    host.name = text.substr(0, colon);
    port = colon == text.npos ? std::string_view() : text.substr(colon);
  }
  host.port = port.empty() ? std::string(default_port) : std::string(port.substr(1));
  return !host.name.empty() && (port.empty() || port.starts_with(':')) && is_port(host.port);
}

milliseconds parse_connect_timeout(const std::string &name, const std::string &value) {
  return parse_duration(name, value, milliseconds(100), milliseconds(300'000));
}

[[noreturn]] void required(OptionName name, OptionName with, const char *detail) {
  throw BadInput(OB_MISSING_OPTION, name,
                 "option \"" + std::string(name) + "\" is required with \"" + with.text + "\"", detail);
}

}  // namespace

std::vector<Host> parse_hosts(const std::string &name, const std::string &value, const char *default_port) {
  std::vector<Host> hosts;
  for (std::string_view part : split(value, ',')) {
    Host host;
    if (!parse_host(part, default_port, host))
      throw_bad_value(name, value, "Expected a comma-separated list of host or host:port, without a scheme.",
                      "Example: 'first.example, second.example:1234'.");
    hosts.push_back(std::move(host));
  }
  return hosts;
}

void check_hosts(const std::string &name, const std::string &value) {
  parse_hosts(name, value, "1234");
}

const std::vector<OptionSpec> &ConnectOptions::specs() {
  static const auto &specs = *new std::vector<OptionSpec>{
      server_option(CONNECT_TIMEOUT, check<parse_connect_timeout>,
                    "How long connecting to one host may take, login included: 100ms to 5min. Default 10s."),
      BrokerGuard::option(),
      server_option(TLS, check<parse_bool>, "Whether to connect with TLS. Default false."),
      server_option(SSL_CA_PEM, check_certificates_pem,
                    "Certificates in PEM that the peer's must come from, instead of the system's authorities."),
      server_option(ENABLE_SSL_CERTIFICATE_VERIFICATION, check<parse_bool>,
                    "Whether the peer's certificate is verified, and made out to its host. Default true."),
      mapping_option(SSL_CERTIFICATE_PEM, check_certificates_pem,
                     "The client's certificate in PEM; its authorities may follow."),
      secret_option(SSL_KEY_PEM, check_key_pem,
                    "The private key of ssl_certificate_pem, in PEM, without a password."),
  };
  return specs;
}

/* Returns the private key; empty if there is none. */
static std::string checked_key(const Options &mapping) {
  const std::string *certificate = find_option(mapping, SSL_CERTIFICATE_PEM),
                    *key = find_option(mapping, SSL_KEY_PEM);
  if (key && !certificate)
    required(SSL_CERTIFICATE_PEM, SSL_KEY_PEM, "The peer is shown the certificate, and the key proves it.");
  if (certificate && !key)
    required(SSL_KEY_PEM, SSL_CERTIFICATE_PEM, "The peer is shown the certificate, and the key proves it.");
  if (!key)
    return {};
  check_key_pair(*key, *certificate);
  return *key;
}

void ConnectOptions::check_mapping(const Options &mapping) {
  checked_key(mapping);
}

bool ConnectOptions::leaves_this_machine() const {
  return std::any_of(hosts.begin(), hosts.end(), [](const Host &host) { return !is_this_machine(host.name); });
}

std::vector<Advice> ConnectOptions::advise(const Options &server) const {
  const std::string noun = words.noun;
  if (!leaves_this_machine() || (tls && verify))
    return {};
  if (tls)
    return {
        {"encryption",
         "It does not verify the certificate of its " + noun +
             ": another machine can take its place, and read events and passwords.",
         std::string("ALTER SERVER ") + the_sink +
             " OPTIONS (DROP enable_ssl_certificate_verification); -- first give the certificate of its authority "
             "as ssl_ca_pem, if that is none of the system's",
         true}};
  return {{"encryption",
           "It connects to another machine without TLS: the network can read events and passwords, and change them.",
           "-- when the " + noun +
               " accepts TLS (some have another port for it, to change in hosts): " + set_option(server, TLS, "true"),
           true}};
}

ConnectOptions ConnectOptions::parse(const PeerWords &words, const Options &server, const Options *mapping,
                                     Owner owner) {
  ConnectOptions made;
  made.words = words;
  read_option(server, TLS, parse_bool, made.tls);
  const std::string *hosts = find_option(server, HOSTS);
  const char *port = made.tls ? words.tls_port : words.port;
  if (!hosts)
    throw BadInput(OB_MISSING_OPTION, HOSTS, "option \"hosts\" is required",
                   std::string("The sink needs a ") + words.noun + " to connect to.",
                   std::string("Example: OPTIONS (hosts 'localhost:") + port + "').");
  made.hosts = parse_hosts(HOSTS, *hosts, port);
  read_option(server, CONNECT_TIMEOUT, parse_connect_timeout, made.connect_timeout);
  made.guard = BrokerGuard::of(server, owner);
  if (!made.tls)
    for (OptionName name : {SSL_CA_PEM, ENABLE_SSL_CERTIFICATE_VERIFICATION})
      refuse_without_meaning(server, name, "The connection has no TLS: set tls 'true'.");
  read_option(server, ENABLE_SSL_CERTIFICATE_VERIFICATION, parse_bool, made.verify);
  if (const std::string *ca = find_option(server, SSL_CA_PEM))
    made.ca_pem = *ca;
  if (!mapping)
    return made;

  if (const std::string *certificate = find_option(*mapping, SSL_CERTIFICATE_PEM))
    made.certificate_pem = *certificate;
  made.key_pem = checked_key(*mapping);
  if (!made.certificate_pem.empty() && !made.tls)
    throw BadInput(OB_BAD_VALUE, SSL_CERTIFICATE_PEM, "option \"ssl_certificate_pem\" has no effect without TLS",
                   "The connection would go without it.", "Use ALTER SERVER ... OPTIONS (ADD tls 'true').");
  return made;
}

}  // namespace outbox
