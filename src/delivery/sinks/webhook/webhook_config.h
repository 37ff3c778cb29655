/*
 * webhook_config.h: a webhook sink's options, parsed, and the request that an event becomes with them.
 */
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "delivery/engine/sink.h"
#include "delivery/formats/cloudevents.h"
#include "delivery/http/network_guard.h"
#include "delivery/options/rate_limiter.h"
#include "delivery/sinks/webhook/webhook_auth.h"
#include "delivery/sinks/webhook/webhook_body.h"
#include "delivery/sinks/webhook/webhook_forward.h"
#include "delivery/sinks/webhook/webhook_headers.h"
#include "delivery/sinks/webhook/webhook_proxy.h"
#include "delivery/sinks/webhook/webhook_url.h"

namespace outbox {

/* One request, ready but for its method, which is the sink's, and for what belongs to the attempt: the time, the
 * signature, the credentials. */
struct WebhookRequest {
  uint64_t ticket = 0;
  uint64_t key_hash = 0;
  std::string id;
  std::string url;  // empty: the sink's, which is the same for every event
  std::string body;
  bool has_content = true;  // false: no body, and no Content-Type
  HttpHeaders headers;
};

struct WebhookConfig final : SinkConfig {
  std::string url;             // as given; empty at DDL time, when it may stand in the user mapping
  bool url_is_secret = false;  // it came from the user mapping
  WebhookUrl target;           // the same, parsed
  std::string method = "POST";
  std::unique_ptr<const CloudEvents> cloud_events;  // null: another format
  bool raw = false;
  std::optional<BodyTemplate> body;  // instead of the format's
  HttpHeaders headers;               // the same for each event
  std::vector<std::pair<std::string, Template>> event_headers;
  ForwardedHeaders forwarded;
  std::string content_type = "application/json";  // of JSON
  bool idempotency_key = false;
  std::string id_header, timestamp_header, signature_header;
  WebhookAuth auth;            // empty at DDL time and for checkers
  SecretMask secrets;          // likewise
  bool knows_mapping = false;  // else what it says is not known
  std::chrono::milliseconds timeout{15'000};
  std::chrono::milliseconds connection_lifetime{60'000};
  size_t concurrency = 32;
  std::optional<RateLimit> rate;
  NetworkGuard guard{{}};
  std::string allow_networks;  // the sink's own, as given, for the error that shows how to add to it
  WebhookProxy proxy;
  std::string ca_pem;

  bool is_https() const { return target.is_https(); }
  void check_event(const ob_event &event) const override;
  Preview preview(const ob_event &event, int64_t now) const override;
  WebhookRequest render(const ob_event &event) const;
  /* What an attempt at `now`, in Unix seconds, sends besides. */
  HttpHeaders attempt_headers(const WebhookRequest &request, int64_t now) const;
  /* Takes the secrets out of a text that a peer had a hand in; where the url is one, also that of the request.
   * `cut`: the text does not end where its writer ended it. */
  std::string without_secrets(std::string_view text, const WebhookRequest &request, bool cut = false) const;

private:
  void write_content(const ob_event &event, WebhookRequest &request) const;
  void write_event_headers(const ob_event &event, WebhookRequest &request) const;
};

std::shared_ptr<const WebhookConfig> parse_webhook(const Options &server, const Options *mapping);

}  // namespace outbox
