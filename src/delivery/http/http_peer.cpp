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

bool is_http(const std::string &url) {
  return same_name(std::string_view(url).substr(0, 5), "http:");
}

}  // namespace

void AnsweredEvents::add(int64_t position) {
  constexpr size_t most = 500;
  std::lock_guard lock(mutex_);
  if (positions_.size() >= most)
    positions_.clear();
  positions_.insert(position);
}

bool AnsweredEvents::take(int64_t position) noexcept {
  std::lock_guard lock(mutex_);
  return positions_.erase(position) > 0;
}

std::vector<Row<HttpPeer>> HttpPeer::rows() {
  using Of = HttpPeer;
  using namespace std::chrono_literals;
  return joined<Of>(
      row(TIMEOUT, &Of::timeout, Duration{100ms, 5min},
          "How long one request may take, with DNS, connecting, TLS and the whole answer, without the wait for a "
          "connection."),
      row("concurrency", &Of::concurrency, Integer{1, 1000, "requests at a time"},
          "Requests at the same time, each of another key (unless `ordered` is `false`). All workers share it, at least "
          "one request each."),
      row("allow_http", &Of::allow_http, Boolean{}, "Whether the URL may be http, unencrypted.").by_superuser(),
      row("allow_networks", &Of::networks, As{parse_networks, "CIDR: `10.0.0.0/8, fd00::/8`"},
          "Networks that [are not public](docs/webhooks-reference.md#which-addresses-may-be-reached) and yet may be "
          "reached.")
          .by_superuser(),
      row("ssl_ca_pem", &Of::ca_pem, Text{check_certificates_pem, "PEM"},
          "Authorities of the endpoint's certificate, and of that of an https proxy.")
          .otherwise("the system's authorities"),
      row("rate_limit", &Of::rate, As{parse_rate, "`100/s`, `600/min`, `1000/h`, `1/10s`"},
          "The [maximum of requests](docs/webhooks-reference.md#concurrency-rate-limits-slow-endpoints) that start within "
          "any interval of that length."),
      row("max_pause", &Of::max_pause, Duration{1s, 24h},
          "The longest pause that an answer may ask for (`Retry-After`)."),
      within(&Of::proxy, HttpProxy::rows()));
}

std::vector<Row<HttpPeer>> HttpPeer::certificate_rows() {
  return within(&HttpPeer::client, ClientCertificate::rows());
}

void HttpPeer::complete_peer(const std::string &url) {
  if (is_http(url) && !allow_http)
    refuse_value(URL, "An http URL sends events unencrypted.",
                 "Use https, or let a superuser set the option allow_http to 'true'.");
  std::vector<Network> allowed = networks_for_all();
  allowed.insert(allowed.end(), networks.begin(), networks.end());
  guard = NetworkGuard(std::move(allowed));
  proxy.complete(url, guard);
}

void HttpPeer::complete_peer_mapping() {
  client.check_certificate();
  proxy.check_login();
  secrets.add(client.key_pem);
  if (!proxy.username.empty())
    secrets.add_basic(proxy.username, proxy.password);
}

void HttpPeer::check_certificate_is_used(const std::string &url) const {
  if (client.is_given() && is_http(url))
    throw BadInput(OB_BAD_VALUE, SSL_CERTIFICATE_PEM, "option \"ssl_certificate_pem\" has no effect with an http url",
                   "The connection would go without it.", "Use an https url.");
}

std::chrono::milliseconds HttpPeer::longest_answer(const Options &server) {
  static const auto &table = *new OptionTable<HttpPeer>(rows());
  HttpPeer peer;
  table.read_one(server, TIMEOUT, peer);
  return peer.timeout + std::chrono::minutes(1);
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

}  // namespace outbox
