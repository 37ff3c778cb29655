/*
 * webhook_options.cpp: the table at the end has each option's name, place, check and documentation. PostgreSQL lets
 * a server's owner change any option, and a validator does not learn who set an option: so a server with a
 * superuser-only option can be altered only by superusers.
 */
#include "delivery/sinks/webhook/webhook_options.h"

#include "delivery/formats/cloudevents.h"
#include "delivery/formats/standard_webhooks.h"
#include "delivery/http/network_guard.h"
#include "delivery/options/pem.h"
#include "delivery/options/rate_limiter.h"
#include "delivery/sinks/webhook/webhook_auth.h"
#include "delivery/sinks/webhook/webhook_body.h"
#include "delivery/sinks/webhook/webhook_forward.h"
#include "delivery/sinks/webhook/webhook_headers.h"
#include "delivery/sinks/webhook/webhook_proxy.h"
#include "delivery/sinks/webhook/webhook_url.h"

namespace outbox {

using std::chrono::milliseconds;

/* ---- values ---- */

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

std::string parse_method(const std::string &name, const std::string &value) {
  for (const char *method : {"POST", "PUT", "PATCH", "DELETE"})
    if (same_name(value, method))
      return method;
  throw_bad_value(name, value, "Expected one of: POST, PUT, PATCH, DELETE.",
                  "An event travels in the body of its request, which other methods do not have.");
}

/* ---- checks ---- */

/* Makes a check of a parser. */
template <auto parse> static void check(const std::string &name, const std::string &value) {
  (void)parse(name, value);
}

/* 0 = never. */
static milliseconds parse_disable_after(const std::string &name, const std::string &value) {
  return parse_duration(name, value, milliseconds(0), std::chrono::hours(24 * 365));
}
milliseconds disable_after_of(const Options &server) {
  auto given = server.find("disable_after");
  return given == server.end() ? milliseconds(std::chrono::hours(24 * 5))
                               : parse_disable_after(given->first, given->second);
}

/* ---- the table ---- */

const std::vector<OptionSpec> &webhook_options() {
  static const auto &specs = *new std::vector<OptionSpec>{
      // name, in_server, in_mapping, secret, superuser
      {"url", true, true, false, false, check<WebhookUrl::parse>,
       "Where events are sent to; variables such as ${aggregate_id} may stand in path and query. In the user mapping "
       "when it carries a token. https, unless allow_http is true."},
      {"format", true, false, false, false, nullptr,
       "Body and headers: 'standard-webhooks' (the default), 'cloudevents' (binary), 'cloudevents-structured', or "
       "'raw' (the payload as it is)."},
      {"method", true, false, false, false, check<parse_method>, "POST (the default), PUT, PATCH or DELETE."},
      {"body", true, false, false, false, check<BodyTemplate::parse>,
       "Instead of the format's body: JSON with variables, '{\"id\": ${id}, \"payload\": ${payload}}'. Empty: no "
       "body."},
      {"source", true, false, false, false, CloudEvents::check_source,
       "Of CloudEvents: a URI reference, with variables. Default '/outbox/${database}/${aggregate_type}'."},
      {"header_prefix", true, false, false, false, nullptr,
       "Of id, timestamp and signature: 'webhook' (the default) or 'svix'."},
      {"idempotency_key", true, false, false, false, check<parse_bool>,
       "Whether the header Idempotency-Key carries the event's dedup_key, or else its id. Default false."},
      {"timeout", true, false, false, false, check<parse_timeout>,
       "How long one request may take, answer included: 100ms to 5min. Default 15s."},
      {"connection_lifetime", true, false, false, false, check<parse_connection_lifetime>,
       "How long a connection is used again before the endpoint's name is resolved anew: 1s to 1d. Default 1min."},
      {"concurrency", true, false, false, false, check<parse_concurrency>,
       "Requests at the same time, of different keys: 1 to 1000. Default 32."},
      {"rate_limit", true, false, false, false, check<parse_rate>,
       "Requests that may start within any stretch of time, retries included: '100/s', '600/min', '1000/h', '1/10s'. "
       "Default: no limit."},
      {"disable_after", true, false, false, false, check<parse_disable_after>,
       "How long the endpoint may fail without a success before it is disabled, its events kept: 0 (for ever) to "
       "365d. "
       "Default 5d."},
      {"allow_http", true, false, false, true, check<parse_bool>,
       "Whether url may be http, unencrypted. Default false. Superuser only."},
      {"allow_networks", true, false, false, true, check<parse_networks>,
       "Networks that are not global and yet may be posted to, in CIDR notation: '10.0.0.0/8, fd00::/8'. Superuser "
       "only."},
      {"proxy", true, false, false, true, check_proxy,
       "The proxy through which requests go: 'http://proxy.example.com:3128', or https. Superuser only."},
      {"headers", true, true, false, false, check<parse_headers>,
       "Request headers, a flat JSON object: '{\"X-Tenant\": \"${header.tenant}\"}'. In the user mapping those that "
       "are secrets, without variables."},
      {"forward_headers", true, false, false, false, check<ForwardedHeaders::parse>,
       "Headers of the event that are sent: names separated by commas, which may end with *. Default 'traceparent, "
       "tracestate, baggage, x-request-id, x-correlation-id'. Never those that the sink writes, cookies, "
       "credentials, "
       "Forwarded and the like."},
      {"ca_pem", true, false, false, false, check_certificates_pem,
       "Certificates in PEM that the endpoint's (and an https proxy's) must come from, instead of the system's "
       "authorities."},
      {"secret", false, true, true, false, check<standard_webhooks::decode_secret>,
       "Signs every request: 'whsec_' and the base64 of 24 to 64 random bytes. Without it requests are not signed."},
      {"old_secret", false, true, true, false, check<standard_webhooks::decode_secret>,
       "During a rotation the secret that receivers still know: both sign."},
      {"proxy_username", false, true, true, false, check_proxy_username, "For the proxy, when it asks for one."},
      {"proxy_password", false, true, true, false, check_proxy_password, "For the proxy, with proxy_username."},
      {"bearer_token", false, true, true, false, check_bearer_token, "Sent as 'Authorization: Bearer ...'."},
      {"username", false, true, true, false, check_username, "Of Basic authentication."},
      {"password", false, true, true, false, check_password, "Of Basic authentication."},
      {"ssl_certificate_pem", false, true, false, false, check_certificates_pem,
       "The client's certificate in PEM, for mutual TLS; its authorities may follow."},
      {"ssl_key_pem", false, true, true, false, check_key_pem, "The private key of ssl_certificate_pem, in PEM."},
      {"ssl_key_password", false, true, true, false, nullptr, "Opens ssl_key_pem when that is encrypted."},
  };
  return specs;
}

}  // namespace outbox
