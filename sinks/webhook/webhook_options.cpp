/*
 * webhook_options.cpp: the table at the end has each option's name, place, check and documentation. The options of
 * the connection are those of all HTTP sinks (http_peer.cpp).
 */
#include "webhook_options.h"

#include <algorithm>

#include "delivery/formats/cloudevents.h"
#include "delivery/formats/standard_webhooks.h"
#include "delivery/identity/oauth_token.h"
#include "delivery/options/rate_limiter.h"
#include "webhook_auth.h"
#include "webhook_body.h"
#include "webhook_forward.h"
#include "delivery/http/http_headers.h"
#include "delivery/http/http_peer.h"
#include "webhook_url.h"

namespace outbox {

using std::chrono::milliseconds;

/* ---- values ---- */

std::string parse_method(const std::string &name, const std::string &value) {
  for (const char *method : {"POST", "PUT", "PATCH", "DELETE"})
    if (same_name(value, method))
      return method;
  throw_bad_value(name, value, "Expected one of: POST, PUT, PATCH, DELETE.",
                  "An event travels in the body of its request, which other methods do not have.");
}

/* ---- checks ---- */

/* 0 = never. */
static milliseconds parse_disable_after(const std::string &name, const std::string &value) {
  return parse_duration(name, value, milliseconds(0), std::chrono::hours(24 * 365));
}
milliseconds disable_after_of(const Options &server) {
  milliseconds after = std::chrono::hours(24 * 5);
  read_option(server, DISABLE_AFTER, parse_disable_after, after);
  return after;
}

/* ---- the table ---- */

static std::vector<OptionSpec> make_options() {
  std::vector<OptionSpec> all{
      server_or_mapping_option(
          URL, check<WebhookUrl::parse>,
          "Where events are sent to; variables such as ${aggregate_id} may stand in path and query. In the user "
          "mapping when it carries a token. https, unless allow_http is true."),
      server_option(FORMAT, nullptr,
                    "Body and headers: 'standard-webhooks' (the default), 'cloudevents' (binary), "
                    "'cloudevents-structured', or 'raw' (the payload as it is)."),
      server_option(METHOD, check<parse_method>, "POST (the default), PUT, PATCH or DELETE."),
      server_option(BODY, check<BodyTemplate::parse>,
                    "Instead of the format's body: JSON with variables, '{\"id\": ${id}, \"payload\": ${payload}}'. "
                    "Empty: no body."),
      server_option(
          SOURCE, check<CloudEvents::parse_source>,
          "Of CloudEvents: a URI reference, with variables. Default '/outbox/${database}/${aggregate_type}'."),
      server_option(HEADER_PREFIX, nullptr,
                    "First part of the names of the headers for id, timestamp and signature: 'webhook' (the default) "
                    "or 'svix'."),
      server_option(
          IDEMPOTENCY_KEY, check<parse_bool>,
          "Whether the header Idempotency-Key carries the event's dedup_key, or else its id. Default false."),
      server_option(DISABLE_AFTER, check<parse_disable_after>,
                    "How long the endpoint may fail without a success before it is disabled, its events kept: 0 (for "
                    "ever) to 365d. Default 5d."),
      server_or_mapping_option(HEADERS, check<parse_headers>,
                               "Request headers, a flat JSON object: '{\"X-Tenant\": \"${header.tenant}\"}'. In the "
                               "user mapping those that are secrets, without variables."),
      server_option(FORWARD_HEADERS, check<ForwardedHeaders::parse>,
                    "Headers of the event that are sent: names separated by commas, which may end with *. Default "
                    "'traceparent, tracestate, baggage, x-request-id, x-correlation-id'. Never those that the sink "
                    "writes, cookies, credentials, Forwarded and the like."),
      server_option(OAUTH_TOKEN_URL, check_token_url,
                    "The token endpoint from which the sink gets an access token, by OAuth 2.0's client credentials. "
                    "https, unless allow_http is true."),
      server_option(OAUTH_CLIENT_ID, check_oauth_text, "With oauth_token_url: who asks for tokens."),
      server_option(OAUTH_SCOPE, check_oauth_text,
                    "With oauth_token_url: scopes of the token, separated by blanks. Default: none is named."),
      server_option(OAUTH_AUDIENCE, check_oauth_text,
                    "With oauth_token_url: who the token is for, where the token endpoint asks for it. Default: none "
                    "is named."),
      secret_option(SECRET, check<standard_webhooks::SigningKey::parse>,
                    "Signs every request: 'whsec_' and the base64 of 24 to 64 random bytes (v1), or 'whsk_' and the "
                    "base64 of an Ed25519 private key (v1a). Without it requests are not signed."),
      secret_option(OLD_SECRET, check<standard_webhooks::SigningKey::parse>,
                    "During a rotation the secret that receivers still know: both sign."),
      secret_option(BEARER_TOKEN, check_bearer_token, "Sent as 'Authorization: Bearer ...'."),
      secret_option(OAUTH_CLIENT_SECRET, check_oauth_text, "Of oauth_client_id, for oauth_token_url."),
      secret_option(USERNAME, check_username, "User name of Basic authentication."),
      secret_option(PASSWORD, check_password, "Password of Basic authentication."),
  };
  const auto server = HttpPeer::server_specs(), mapping = HttpPeer::mapping_specs();
  const auto place = std::find_if(all.begin(), all.end(), [](const OptionSpec &spec) {
    return std::string_view(spec.name.text) == DISABLE_AFTER.text;
  });
  all.insert(place, server.begin(), server.end()); /* hints show the first ones */
  all.insert(all.end(), mapping.begin(), mapping.end());
  return all;
}

const std::vector<OptionSpec> &webhook_options() {
  static const auto &specs = *new std::vector<OptionSpec>(make_options());
  return specs;
}

}  // namespace outbox
