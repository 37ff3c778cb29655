/* webhook_options.h: the options of outbox_webhook. */
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "delivery/formats/cloudevents.h"
#include "delivery/formats/standard_webhooks.h"
#include "delivery/http/http_headers.h"
#include "delivery/http/http_peer.h"
#include "delivery/options/flat_object.h"
#include "webhook_batch.h"
#include "webhook_body.h"
#include "webhook_forward.h"
#include "webhook_url.h"

namespace outbox {

inline constexpr OptionName BATCH{"batch"}, BODY{"body"}, DISABLE_AFTER{"disable_after"},
    OAUTH_TOKEN_URL{"oauth_token_url"}, OAUTH_CLIENT_ID{"oauth_client_id"}, OAUTH_PARAMETERS{"oauth_parameters"},
    SECRET{"secret"}, OAUTH_CLIENT_SECRET{"oauth_client_secret"}, IDEMPOTENCY_KEY{"idempotency_key"},
    FORWARD_HEADERS{"forward_headers"};

enum class WebhookFormat { StandardWebhooks, CloudEvents, Structured, Raw };

/* An empty text: not given. */
struct WebhookOptions : HttpPeer {
  WebhookUrl target; /* empty at DDL time if it may be in the user mapping */
  WebhookFormat format = WebhookFormat::StandardWebhooks;
  std::optional<BodyTemplate> body; /* replaces the format's body */
  std::optional<Batch> batch;       /* none: one event in a request */
  Template source = CloudEvents::default_source();
  bool idempotency_key = false;
  std::chrono::milliseconds disable_after = std::chrono::hours(24 * 5); /* 0 = never */
  HttpHeaders server_headers, mapping_headers;
  ForwardedHeaders forwarded = ForwardedHeaders::parse({}, ForwardedHeaders::defaults);
  std::string oauth_token_url, oauth_client_id, oauth_client_secret;
  FlatObject oauth_parameters;
  std::vector<standard_webhooks::SigningKey> signing_keys; /* the new one first; during a rotation both sign */
  std::string token, username, password;

  static const OptionTable<WebhookOptions> &table();
  /* Reads a user mapping, and checks its options together. Throws BadInput. */
  void read_mapping(const Options &mapping);
};

}  // namespace outbox
