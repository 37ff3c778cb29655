/* webhook_request.cpp: the request that an event becomes, to be sent or to be looked at. */
#include <algorithm>

#include "delivery/formats/standard_webhooks.h"
#include "delivery/sinks/webhook_config.h"
#include "delivery/uuid.h"

namespace outbox {

void WebhookConfig::check_event(const ob_event &event) const {
  for (size_t i = 0; i < event.n_headers; ++i)
    if (!event.headers[i].binary) /* those are left out */
      check_http_header(view(event.headers[i].name), view(event.headers[i].value));
  if (event.payload_is_bytes && has_control(view(event.content_type)))
    throw BadInput(OB_BAD_VALUE, "content_type", "content type contains a control character",
                   "It is sent as the header Content-Type.");
}

WebhookRequest WebhookConfig::render(const ob_event &event) const {
  WebhookRequest request;
  request.ticket = event.ticket;
  request.key_hash = event.key_hash;
  request.id = uuid_text(event.id);
  request.body = standard_webhooks::body(event);
  std::string_view content_type = "application/json";
  if (event.payload_is_bytes)
    content_type = event.content_type.len ? view(event.content_type) : "application/octet-stream";
  request.headers.emplace_back("User-Agent", "outbox");
  request.headers.emplace_back("Content-Type", content_type);
  request.headers.emplace_back("webhook-id", request.id);
  request.headers.insert(request.headers.end(), headers.begin(), headers.end());
  for (size_t i = 0; i < event.n_headers; ++i) {
    std::string_view name = view(event.headers[i].name);
    auto same = [&](auto &header) { return lower(header.first) == lower(name); };
    if (!event.headers[i].binary && !is_reserved(name) && std::none_of(headers.begin(), headers.end(), same))
      request.headers.emplace_back(name, view(event.headers[i].value));
  }
  for (auto &[name, value] : request.headers)
    if (value.find_first_not_of(" \t") == value.npos)
      value.clear(); /* as HTTP reads it */
  return request;
}

HttpHeaders WebhookConfig::attempt_headers(const WebhookRequest &request, int64_t now) const {
  HttpHeaders added;
  if (!bearer_token.empty())
    added.emplace_back("Authorization", "Bearer " + bearer_token);
  added.emplace_back("webhook-timestamp", std::to_string(now));
  if (!signing_key.empty())
    added.emplace_back("webhook-signature", standard_webhooks::sign(signing_key, request.id, now, request.body));
  return added;
}

Preview WebhookConfig::preview(const ob_event &event) const {
  WebhookRequest request = render(event);
  Preview parts;
  parts.push_back({"method", {}, method, {}});
  if (!request.url.empty())
    parts.push_back({"url", {}, std::move(request.url), {}});
  else if (url.empty())
    parts.push_back({"url", {}, {}, "(in the user mapping)"});
  else
    parts.push_back({"url", {}, url, {}});
  for (auto &[name, value] : request.headers)
    parts.push_back({"header", name, value, {}});
  /* As attempt_headers(): whoever adds one there adds it here. */
  parts.push_back({"header", "Authorization", {}, "(Bearer ***, when the user mapping has a bearer_token)"});
  parts.push_back({"header", "webhook-timestamp", {}, "(the time of each attempt, in Unix seconds)"});
  parts.push_back(
      {"header", "webhook-signature", {}, "(v1,*** of each attempt, when the user mapping has a secret)"});
  parts.push_back({"body", {}, std::move(request.body), {}});
  return parts;
}

}  // namespace outbox
