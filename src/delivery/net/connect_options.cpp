/*
 * connect_options.cpp: hosts may be named by any owner of a sink, so no error text of a connection may contain what a
 * peer has answered, unless it speaks the sink's protocol.
 */
#include "delivery/net/connect_options.h"

#include <algorithm>
#include <charconv>

#include "delivery/base/text.h"

namespace outbox {
namespace {

bool is_port(std::string_view text) {
  unsigned number = 0;
  auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc() && end == text.data() + text.size() && number >= 1 && number <= 65535;
}

/* host, host:port, v6 address in brackets with or without port. Returns false for anything else. */
bool parse_host(std::string_view text, Host &host) {
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
  host.port = port.substr(port.empty() ? 0 : 1);
  return !host.name.empty() && (port.empty() || (port.starts_with(':') && is_port(host.port)));
}

}  // namespace

std::vector<Host> parse_hosts(const std::string &name, const std::string &value) {
  std::vector<Host> hosts;
  for (std::string_view part : split(value, ',')) {
    Host host;
    if (!parse_host(part, host))
      throw_bad_value(name, value, "Expected a comma-separated list of host or host:port, without a scheme.",
                      "Example: 'first.example, second.example:1234'.");
    hosts.push_back(std::move(host));
  }
  return hosts;
}

std::vector<Row<ConnectOptions>> ConnectOptions::rows() {
  using Of = ConnectOptions;
  using namespace std::chrono_literals;
  return joined<Of>(
      row("connect_timeout", &Of::connect_timeout, Duration{100ms, 5min},
          "How long connecting to one host may take, login included."),
      BrokerGuard::allow_networks(&Of::networks), row(TLS, &Of::tls, Boolean{}, "Connect with TLS, 1.2 or later."),
      row(SSL_CA_PEM, &Of::ca_pem, Text{check_certificates_pem, "PEM"}, "Authorities of the peer's certificate.")
          .otherwise("the system's authorities"),
      row(ENABLE_SSL_CERTIFICATE_VERIFICATION, &Of::verify, Boolean{},
          "Verify the peer's certificate and its host name."),
      ClientCertificate::rows());
}

void ConnectOptions::complete_connection(const Options &server, Owner owner) {
  const char *port = tls ? words.tls_port : words.port;
  if (hosts.empty())
    throw BadInput(OB_MISSING_OPTION, HOSTS, "option \"hosts\" is required",
                   std::string("The sink needs a ") + words.noun + " to connect to.",
                   std::string("Example: OPTIONS (hosts 'localhost:") + port + "').");
  for (Host &host : hosts)
    if (host.port.empty())
      host.port = port;
  guard = BrokerGuard::of(networks, owner);
  if (!tls)
    for (OptionName name : {SSL_CA_PEM, ENABLE_SSL_CERTIFICATE_VERIFICATION})
      refuse_without_meaning(server, name, "The connection has no TLS: set tls 'true'.");
}

void ConnectOptions::require_with(const Options &mapping, OptionName name, OptionName with) const {
  if (find_option(mapping, with) && !find_option(mapping, name))
    throw BadInput(OB_MISSING_OPTION, name,
                   std::string("option \"") + name.text + "\" is required with \"" + with.text + "\"",
                   std::string("The ") + words.noun + " asks for both.");
}

void ConnectOptions::check_certificate_is_used() const {
  if (!certificate_pem.empty() && !tls)
    throw BadInput(OB_BAD_VALUE, SSL_CERTIFICATE_PEM, "option \"ssl_certificate_pem\" has no effect without TLS",
                   "The connection would go without it.", "Use ALTER SERVER ... OPTIONS (ADD tls 'true').");
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

}  // namespace outbox
