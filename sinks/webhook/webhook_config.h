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
#include "delivery/identity/oauth_token.h"
#include "webhook_auth.h"
#include "delivery/http/http_sender.h"

namespace outbox {

/* Of Standard Webhooks. */
inline constexpr const char *ID_HEADER = "webhook-id", *TIMESTAMP_HEADER = "webhook-timestamp",
                            *SIGNATURE_HEADER = "webhook-signature";

struct WebhookConfig final : SinkConfig, WebhookOptions {
  bool url_is_secret = false;                       // the URL is from the user mapping
  std::unique_ptr<const CloudEvents> cloud_events;  // null if the format is another
  HttpHeaders headers;                              // headers that are the same for every event
  std::vector<std::pair<std::string, Template>> event_headers;
  std::string content_type = "application/json";  // the content type of JSON bodies
  WebhookAuth auth;                               // empty at DDL time and for checkers
  std::optional<OauthClient> oauth;               // of each request's access token; none at DDL time and for checkers
  bool knows_mapping = false;                     // false: the user mapping was not given

  bool is_https() const { return target.is_https(); }
  /* The URL of the requests that name none of their own. */
  const std::string &url() const { return target.has_variables() ? target.origin() : target.text(); }
  void check_event(const ob_event &event) const override;
  std::chrono::milliseconds longest_delay() const override { return max_pause; }
  Preview preview(const ob_event &event, int64_t now) const override;
  /* The request without what each attempt adds: timestamp, signature, credentials. With `batch`: the event's part of
   * a request. */
  HttpMessage render(const ob_event &event) const;
  /* With `batch`: the request of these parts, without what each attempt adds. */
  HttpMessage joined(const std::vector<HttpMessage> &parts) const;
  /* Of a request of render(): otherwise it has neither a body nor Content-Type. */
  static bool has_content(const HttpMessage &request) { return find_header(request.headers, "Content-Type"); }
  /* The headers that an attempt at `now` (Unix time in seconds) adds to the request. `token`: null, or an access
   * token. */
  HttpHeaders attempt_headers(const HttpMessage &request, const std::string *token, int64_t now) const;

private:
  HttpMessage render_part(const ob_event &event) const;
  void write_content(const ob_event &event, HttpMessage &request) const;
  void write_event_headers(const ob_event &event, HttpMessage &request) const;
};

std::shared_ptr<const WebhookConfig> parse_webhook(const Options &server, const Options *mapping);

}  // namespace outbox
