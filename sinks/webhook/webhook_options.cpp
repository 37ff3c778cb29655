/*
 * webhook_options.cpp: the table of options. Those of the connection are common to all HTTP sinks (http_peer.cpp).
 */
#include "webhook_options.h"

#include "delivery/identity/oauth_token.h"
#include "webhook_auth.h"

namespace outbox {

using namespace std::chrono_literals;

static std::string parse_method(const std::string &name, const std::string &value) {
  for (const char *method : {"POST", "PUT", "PATCH", "DELETE"})
    if (same_name(value, method))
      return method;
  throw_bad_value(name, value, "Expected one of: POST, PUT, PATCH, DELETE.",
                  "An event travels in the body of its request, which other methods do not have.");
}

const OptionTable<WebhookOptions> &WebhookOptions::table() {
  using Of = WebhookOptions;
  using standard_webhooks::SigningKey;
  static const auto &table = *new OptionTable<Of>(
      row(URL, &Of::target, As{WebhookUrl::parse, "`https://...`"},
          "Where events are sent to; [variables](docs/webhooks-reference.md#templates) in path and query. A URL that "
          "carries a token goes into the user mapping. https, unless `allow_http` is true.")
          .in_both()
          .otherwise("required, of the server or in the user mapping"),
      row(FORMAT, &Of::format,
          Choice<WebhookFormat>{{{"standard-webhooks", WebhookFormat::StandardWebhooks},
                                 {"cloudevents", WebhookFormat::CloudEvents},
                                 {"cloudevents-structured", WebhookFormat::Structured},
                                 {"raw", WebhookFormat::Raw}}},
          "Body and headers: `{\"id\", \"type\", \"timestamp\", \"data\"}`, signed; CloudEvents; or the payload as it is: "
          "[the request](docs/webhooks-reference.md#the-request)."),
      row("method", &Of::method, As{parse_method, "`POST`, `PUT`, `PATCH`, `DELETE`"}, "For any REST endpoint.")
          .in_form(OptionForm::Word),
      row(BODY, &Of::body, As{BodyTemplate::parse, "`{\"payload\": ${payload}}`"},
          "Instead of the format's body: a JSON [template](docs/webhooks-reference.md#templates). Empty: no body.")
          .otherwise("that of the format"),
      row(BATCH, &Of::batch, As{Batch::parse, "`100`, `100, 256kB`, `100, 256kB, 20ms`, `100, ndjson`"},
          "[Several events in a request](docs/webhooks.md#several-events-in-one-request): at most so many (1 to 10000), "
          "with so many bytes (1kB to 16MB; default 1MB), for which the first waits so long (0 to 5s; default 0). With "
          "`ndjson` the body has one event in each line (`application/x-ndjson`), else it is a JSON array.")
          .otherwise("one event in a request, and no list"),
      row(SOURCE, &Of::source, CloudEvents::parse_source, "Of CloudEvents: a template of a URI reference."),
      row(IDEMPOTENCY_KEY, &Of::idempotency_key, Boolean{},
          "Whether [`Idempotency-Key`](docs/webhooks.md#call-an-existing-endpoint) carries the event's `dedup_key`, or "
          "else its id."),
      HttpPeer::rows(),
      row(DISABLE_AFTER, &Of::disable_after, Duration{0ms, 24h * 365},
          "After failing for this time without a success the sink is disabled, and its events are kept: "
          "[stopped sinks](docs/webhooks-reference.md#stopped-sinks). 0: never."),
      row(HEADERS, &Of::server_headers,
          As{parse_headers, "a flat JSON object: `{\"X-Tenant\": \"${header.tenant}\"}`"}, "Sent with each request."),
      row(FORWARD_HEADERS, &Of::forwarded,
          As{ForwardedHeaders::parse, "names separated by commas, which may end with `*`"},
          "Which of the event's headers are sent; "
          "[some are never sent](docs/webhooks-reference.md#headers-of-the-event).")
          .otherwise(std::string("`") + ForwardedHeaders::defaults + "`"),
      row(OAUTH_TOKEN_URL, &Of::oauth_token_url, Text{check_token_url},
          "Where the sink gets [access tokens](docs/webhooks-reference.md#access-tokens) by client credentials. https, "
          "unless `allow_http` is true."),
      row(OAUTH_CLIENT_ID, &Of::oauth_client_id, Text{check_oauth_text},
          "With `oauth_token_url`: who asks for tokens."),
      row(OAUTH_PARAMETERS, &Of::oauth_parameters,
          As{parse_oauth_parameters, "`{\"scope\": \"events.write\", \"audience\": \"https://api.example\"}`"},
          "With `oauth_token_url`: further parameters of the request for a token, such as `scope`, `audience` and "
          "`resource`, as the token endpoint wants them."),
      row(SECRET, &Of::signing_keys, As{SigningKey::parse_list, "`whsec_...`, or `whsk_...`; two with a comma"},
          "Signs every request. The base64 is of 24 to 64 random bytes, or of a "
          "[private key](docs/webhooks.md#signatures-with-a-public-key). During a rotation give the new key and then "
          "the old one: the header then has both signatures.")
          .as_secret()
          .otherwise("requests are not signed"),
      row(TOKEN, &Of::token, Text{check_bearer_token}, "Sent as `Authorization: Bearer ...`.").as_secret(),
      row(OAUTH_CLIENT_SECRET, &Of::oauth_client_secret, Text{check_oauth_text},
          "Of `oauth_client_id`, for `oauth_token_url`.")
          .as_secret(),
      row(USER, &Of::username, Text{check_username}, "User name of Basic authentication.").as_secret(),
      row(PASSWORD, &Of::password, Text{check_password}, "Password of Basic authentication.").as_secret(),
      row(HEADERS, &Of::mapping_headers, As{parse_headers, "a flat JSON object"},
          "Headers that are secret, without variables.")
          .in_user_mapping(),
      HttpPeer::certificate_rows());
  return table;
}

void WebhookOptions::read_mapping(const Options &mapping) {
  table().read(mapping, OB_USER_MAPPING, *this);
  WebhookAuth::of(*this, mapping);
  complete_peer_mapping();
  add_webhook_secrets(*this, mapping, secrets);
}

}  // namespace outbox
