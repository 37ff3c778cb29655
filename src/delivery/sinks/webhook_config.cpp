#include "delivery/sinks/webhook_config.h"

#include <string_view>

#include "delivery/formats/standard_webhooks.h"
#include "delivery/sinks/webhook_options.h"
#include "delivery/sinks/webhook_url.h"

namespace outbox {

static const std::string *find(const Options *options, const char *name) {
  if (!options)
    return nullptr;
  auto found = options->find(name);
  return found == options->end() ? nullptr : &found->second;
}

std::shared_ptr<const WebhookConfig> parse_webhook(const Options &server, const Options *mapping) {
  for (const OptionSpec &spec : webhook_options()) {
    if (auto *value = find(spec.in_server ? &server : nullptr, spec.name))
      spec.check(spec.name, *value);
    if (auto *value = find(spec.in_mapping ? mapping : nullptr, spec.name))
      spec.check(spec.name, *value);
  }

  auto config = std::make_shared<WebhookConfig>();
  if (auto *url = find(mapping, "url")) {
    config->url = *url;
    config->url_is_secret = true;
  } else if (auto *url = find(&server, "url")) {
    config->url = *url;
  } else if (mapping) {
    throw BadInput(
        OB_MISSING_OPTION, "url", "option \"url\" is missing",
        "Neither the server nor PUBLIC's user mapping says where events are posted to.",
        "ALTER SERVER ... OPTIONS (ADD url 'https://...'), or give it to the user mapping when it carries a token.");
  }
  auto *allow_http = find(&server, "allow_http");
  if (!config->url.empty() && parse_url("url", config->url) == "http" &&
      !(allow_http && parse_bool("allow_http", *allow_http)))
    refuse_value("url", "An http URL sends events unencrypted.",
                 "Use https, or set the option allow_http to 'true'.");

  if (auto *value = find(&server, "timeout"))
    config->timeout = parse_timeout("timeout", *value);
  if (auto *value = find(&server, "concurrency"))
    config->concurrency = parse_concurrency("concurrency", *value);
  if (auto *value = find(&server, "allow_networks")) {
    config->allow_networks = *value;
    config->guard = NetworkGuard(parse_networks("allow_networks", *value));
  }
  if (auto *value = find(&server, "headers"))
    config->headers = parse_headers("headers", *value);
  if (auto *value = find(&server, "ca_pem"))
    config->ca_pem = *value;
  if (auto *value = find(mapping, "secret"))
    config->signing_key = standard_webhooks::decode_secret("secret", *value);
  if (auto *value = find(mapping, "bearer_token"))
    config->bearer_token = *value;
  return config;
}

std::string WebhookConfig::without_secrets(std::string text) const {
  auto mask = [&text](std::string_view secret) {
    for (size_t at = 0; secret.size() >= 4 && (at = text.find(secret, at)) != text.npos; at += 3)
      text.replace(at, secret.size(), "***");
  };
  mask(bearer_token);
  if (url_is_secret) {
    mask(url);
    size_t path = url.find('/', url.find("://") + 3);
    if (path != url.npos)
      mask(std::string_view(url).substr(path));
  }
  return text;
}

}  // namespace outbox
