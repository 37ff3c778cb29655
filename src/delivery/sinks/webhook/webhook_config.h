/*
 * webhook_config.h: the parsed options of a webhook sink, and the request that they make of an event.
 */
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "delivery/engine/sink.h"
#include "delivery/formats/cloudevents.h"
#include "delivery/identity/oauth_token.h"
#include "delivery/options/rate_limiter.h"
#include "delivery/sinks/webhook/webhook_auth.h"
#include "delivery/sinks/webhook/webhook_body.h"
#include "delivery/sinks/webhook/webhook_forward.h"
#include "delivery/http/http_headers.h"
#include "delivery/http/http_peer.h"
#include "delivery/sinks/webhook/webhook_url.h"

namespace outbox {

/* One request, without its method, which is the sink's, and without what each attempt adds: timestamp, signature,
 * credentials. */
struct WebhookRequest {
  uint64_t ticket = 0;
  uint64_t key_hash = 0;
  int64_t position = 0;
  KeptConnection kept = KeptConnection::FREE;
  std::string id;
  std::string url;  // empty: the sink's URL, which is the same for every event
  std::string body;
  bool has_content = true;  // false: neither body nor Content-Type
  HttpHeaders headers;
  std::shared_ptr<const OauthToken> token;  // the access token of this attempt; null: the sink uses none
};

struct WebhookConfig final : SinkConfig, HttpPeer {
  std::string url;             // as given; empty at DDL time if it may be in the user mapping
  bool url_is_secret = false;  // the URL is from the user mapping
  WebhookUrl target;           // the parsed URL
  std::string method = "POST";
  std::unique_ptr<const CloudEvents> cloud_events;  // null if the format is another
  bool raw = false;
  std::optional<BodyTemplate> body;  // replaces the format's body
  HttpHeaders headers;               // headers that are the same for every event
  std::vector<std::pair<std::string, Template>> event_headers;
  ForwardedHeaders forwarded;
  std::string content_type = "application/json";  // the content type of JSON bodies
  bool idempotency_key = false;
  std::string id_header, timestamp_header, signature_header;
  WebhookAuth auth;                  // empty at DDL time and for checkers
  std::optional<OauthClient> oauth;  // of each request's access token; none at DDL time and for checkers
  bool knows_mapping = false;        // false: the user mapping was not given

  bool is_https() const { return target.is_https(); }
  void check_event(const ob_event &event) const override;
  std::chrono::milliseconds longest_delay() const override { return max_pause; }
  Preview preview(const ob_event &event, int64_t now) const override;
  WebhookRequest render(const ob_event &event) const;
  /* The headers that an attempt at `now` (Unix time in seconds) adds. */
  HttpHeaders attempt_headers(const WebhookRequest &request, int64_t now) const;
  /* Masks secrets in a text that may contain a peer's words; if the URL is secret, also the URL of this request.
   * `cut`: the text was truncated. */
  std::string without_secrets(std::string_view text, const WebhookRequest &request, bool cut = false) const;

private:
  void write_content(const ob_event &event, WebhookRequest &request) const;
  void write_event_headers(const ob_event &event, WebhookRequest &request) const;
};

std::shared_ptr<const WebhookConfig> parse_webhook(const Options &server, const Options *mapping);

}  // namespace outbox
