/*
 * http_peer.cpp: PostgreSQL lets a server's owner change any option, and a validator does not learn who set an
 * option: so a server with a superuser-only option can be altered only by superusers.
 */
#include "delivery/http/http_peer.h"

#include "delivery/http/http_headers.h"
#include "delivery/http/url_parts.h"
#include "delivery/options/pem.h"

namespace outbox {
namespace {

using std::chrono::milliseconds;

milliseconds parse_timeout(const std::string &name, const std::string &value) {
  return parse_duration(name, value, milliseconds(100), milliseconds(300'000));
}

/* In whole seconds, libcurl's unit. */
milliseconds parse_connection_lifetime(const std::string &name, const std::string &value) {
  return parse_duration(name, value, std::chrono::seconds(1), std::chrono::hours(24));
}

size_t parse_concurrency(const std::string &name, const std::string &value) {
  return static_cast<size_t>(parse_int(name, value, 1, 1000));
}

milliseconds parse_max_pause(const std::string &name, const std::string &value) {
  return parse_duration(name, value, std::chrono::seconds(1), std::chrono::hours(24));
}

[[noreturn]] void required(OptionName name, OptionName with, std::string detail) {
  throw BadInput(OB_MISSING_OPTION, name,
                 "option \"" + std::string(name) + "\" is required with \"" + with.text + "\"", std::move(detail),
                 "Use CREATE USER MAPPING FOR PUBLIC SERVER ... OPTIONS (" + std::string(name) + " '...').");
}

bool is_http(const std::string &url) {
  return same_name(std::string_view(url).substr(0, 5), "http:");
}

void set_networks(const Options &server, HttpPeer &peer) {
  auto networks = networks_for_all();
  if (auto *value = find_option(server, ALLOW_NETWORKS)) {
    peer.allow_networks = *value;
    auto own = parse_networks(ALLOW_NETWORKS, *value);
    networks.insert(networks.end(), own.begin(), own.end());
  }
  peer.guard = NetworkGuard(std::move(networks));
}

ClientCertificate client_certificate(const Options &mapping) {
  auto *certificate = find_option(mapping, SSL_CERTIFICATE_PEM), *key = find_option(mapping, SSL_KEY_PEM);
  constexpr const char *both = "An endpoint is shown the certificate, and the key proves it.";
  if (key && !certificate)
    required(SSL_CERTIFICATE_PEM, SSL_KEY_PEM, both);
  if (certificate && !key)
    required(SSL_KEY_PEM, SSL_CERTIFICATE_PEM, both);
  if (!key)
    return {};
  check_key_pair(*key, *certificate);
  return {*certificate, *key};
}

void check_client_certificate(const ClientCertificate &client, const std::string &url) {
  if (client.is_given() && is_http(url))
    throw BadInput(OB_BAD_VALUE, SSL_CERTIFICATE_PEM, "option \"ssl_certificate_pem\" has no effect with an http url",
                   "The connection would go without it.", "Use an https url.");
}

}  // namespace

void AnsweredEvents::add(int64_t position) noexcept {
  constexpr size_t most = 500;
  std::lock_guard lock(mutex_);
  try {
    if (positions_.size() >= most)
      positions_.clear();
    positions_.insert(position);
  } catch (const std::bad_alloc &) { /* the event gets a new connection */
  }
}

bool AnsweredEvents::take(int64_t position) noexcept {
  std::lock_guard lock(mutex_);
  return positions_.erase(position) > 0;
}

std::vector<OptionSpec> HttpPeer::server_specs() {
  return {
      server_option(TIMEOUT, check<parse_timeout>,
                    "How long one request may take, answer included: 100ms to 5min. Default 15s."),
      server_option(
          CONNECTION_LIFETIME, check<parse_connection_lifetime>,
          "How long a connection is used again before the endpoint's name is resolved anew: 1s to 1d. Default 1min."),
      server_option(CONCURRENCY, check<parse_concurrency>,
                    "Requests at the same time, of different keys: 1 to 1000. Default 32."),
      superuser_option(ALLOW_HTTP, check<parse_bool>,
                       "Whether url may be http, unencrypted. Default false. Superuser only."),
      superuser_option(ALLOW_NETWORKS, check<parse_networks>,
                       "Networks that are not global and yet may be posted to, in CIDR notation: '10.0.0.0/8, "
                       "fd00::/8'. Superuser only."),
      superuser_option(
          PROXY, check_proxy,
          "The proxy through which requests go: 'http://proxy.example.com:3128', or https. Superuser only."),
      server_option(CA_PEM, check_certificates_pem,
                    "Certificates in PEM that the endpoint's (and an https proxy's) must come from, instead of the "
                    "system's authorities."),
      server_option(RATE_LIMIT, check<parse_rate>,
                    "Requests that may start within any stretch of time, retries included: '100/s', '600/min', "
                    "'1000/h', '1/10s'. Default: no limit."),
      server_option(
          MAX_PAUSE, check<parse_max_pause>,
          "The longest pause for which an answer may ask by Retry-After or RateLimit-Reset: 1s to 1d. Default 1h."),
  };
}

std::vector<OptionSpec> HttpPeer::mapping_specs() {
  return {
      secret_option(PROXY_USERNAME, check_proxy_username, "For the proxy, when it asks for one."),
      secret_option(PROXY_PASSWORD, check_proxy_password, "For the proxy, with proxy_username."),
      mapping_option(SSL_CERTIFICATE_PEM, check_certificates_pem,
                     "The client's certificate in PEM, for mutual TLS; its authorities may follow."),
      secret_option(SSL_KEY_PEM, check_key_pem,
                    "The private key of ssl_certificate_pem, in PEM, without a password."),
  };
}

void HttpPeer::check_mapping(const Options &mapping) {
  client_certificate(mapping);
  check_proxy_mapping(mapping);
}

void HttpPeer::add_secrets(const Options &mapping, SecretMask &secrets) {
  if (auto *key = find_option(mapping, SSL_KEY_PEM))
    secrets.add(*key);
  if (auto *user = find_option(mapping, PROXY_USERNAME)) {
    auto *password = find_option(mapping, PROXY_PASSWORD);
    secrets.add_basic(*user, password ? *password : std::string());
  }
}

milliseconds HttpPeer::longest_answer(const Options &server) {
  milliseconds timeout = default_timeout;
  read_option(server, TIMEOUT, parse_timeout, timeout);
  return timeout + std::chrono::minutes(1);
}

std::vector<Advice> HttpPeer::advise(const Options &server, OptionName option) {
  const std::string *url = find_option(server, option);
  if (!url || !is_http(*url) || is_this_machine(UrlParts(*url).host))
    return {};
  return {{"encryption",
           "It sends to another machine without TLS: the network can read events and credentials, and change them.",
           "-- when the peer accepts TLS, perhaps on another port: " +
               set_option(server, option, "https" + url->substr(4)),
           true}};
}

void HttpPeer::parse(const Options &server, const Options *mapping, const std::string &url) {
  auto *allow_http = find_option(server, ALLOW_HTTP);
  if (is_http(url) && !(allow_http && parse_bool(ALLOW_HTTP, *allow_http)))
    refuse_value(URL, "An http URL sends events unencrypted.",
                 "Use https, or let a superuser set the option allow_http to 'true'.");
  read_option(server, TIMEOUT, parse_timeout, timeout);
  read_option(server, CONNECTION_LIFETIME, parse_connection_lifetime, connection_lifetime);
  read_option(server, CONCURRENCY, parse_concurrency, concurrency);
  read_option(server, RATE_LIMIT, parse_rate, rate);
  read_option(server, MAX_PAUSE, parse_max_pause, max_pause);
  set_networks(server, *this);
  proxy = parse_proxy(server, mapping, url, guard);
  if (auto *value = find_option(server, CA_PEM))
    ca_pem = *value;
  if (mapping) {
    client = client_certificate(*mapping);
    check_client_certificate(client, url);
    check_proxy_mapping(*mapping);
  }
}

}  // namespace outbox
