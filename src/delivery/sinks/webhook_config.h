/*
 * webhook_config.h: a webhook sink's options, parsed, and the request that an event becomes with them.
 */
#pragma once

#include <chrono>
#include <string>

#include "delivery/network_guard.h"
#include "delivery/sink.h"
#include "delivery/sinks/webhook_headers.h"

namespace outbox {

/* One request, ready but for its method, which is the sink's, and for what belongs to the attempt: the time, the
 * signature, the credentials. */
struct WebhookRequest {
  uint64_t ticket = 0;
  uint64_t key_hash = 0;
  std::string id;
  std::string url;  // empty: the sink's, which is the same for every event
  std::string body;
  HttpHeaders headers;
};

struct WebhookConfig final : SinkConfig {
  std::string method = "POST";
  std::string url;  // empty at DDL time, when it may stand in the user mapping
  std::chrono::milliseconds timeout{15'000};
  size_t concurrency = 32;
  NetworkGuard guard{{}};
  std::string allow_networks;  // as given, for the error that shows how to add to it
  HttpHeaders headers;
  std::string ca_pem;
  std::string signing_key;  // empty: not signed
  std::string bearer_token;
  bool is_https() const { return url.size() >= 6 && (url[4] == 's' || url[4] == 'S'); }
  bool url_is_secret = false;  // it came from the user mapping

  void check_event(const ob_event &event) const override;
  Preview preview(const ob_event &event) const override;
  WebhookRequest render(const ob_event &event) const;
  /* What an attempt at `now`, in Unix seconds, sends besides. */
  HttpHeaders attempt_headers(const WebhookRequest &request, int64_t now) const;
  /* Takes the secrets out of a text that a peer had a hand in. */
  std::string without_secrets(std::string text) const;
};

std::shared_ptr<const WebhookConfig> parse_webhook(const Options &server, const Options *mapping);

}  // namespace outbox
