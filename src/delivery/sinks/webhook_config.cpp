#include "delivery/sinks/webhook_config.h"

#include <algorithm>
#include <string_view>

#include <curl/curl.h>
#include <nlohmann/json.hpp>

#include "delivery/formats/standard_webhooks.h"
#include "delivery/http_answer.h"
#include "delivery/pem.h"
#include "delivery/sinks/webhook_headers.h"

namespace outbox {
namespace {

using std::chrono::milliseconds;

/* Says what was expected and never what was given: URLs and tokens are secrets. */
[[noreturn]] void refuse(const std::string &option, std::string detail, std::string hint = {}) {
  throw BadInput(OB_BAD_VALUE, option, "invalid value for option \"" + option + "\"", std::move(detail),
                 std::move(hint));
}

/* ---- values of options ---- */

using Url = std::unique_ptr<CURLU, decltype(&curl_url_cleanup)>;

std::string url_part(const Url &url, CURLUPart part) {
  char *text = nullptr;
  if (curl_url_get(url.get(), part, &text, 0) != CURLUE_OK)
    return {};
  std::string copy(text);
  curl_free(text);
  return copy;
}

/* The scheme, after everything else was found good. */
std::string parse_url(const std::string &option, const std::string &value) {
  Url url(curl_url(), curl_url_cleanup);
  if (!url)
    throw std::bad_alloc();
  std::string scheme;
  if (curl_url_set(url.get(), CURLUPART_URL, value.c_str(), 0) == CURLUE_OK)
    scheme = url_part(url, CURLUPART_SCHEME);
  if ((scheme != "https" && scheme != "http") || url_part(url, CURLUPART_HOST).empty())
    refuse(option, "Expected an https URL such as https://example.com/hooks.");
  if (!url_part(url, CURLUPART_USER).empty() || !url_part(url, CURLUPART_PASSWORD).empty())
    refuse(
        option, "A URL must not carry a user name or a password.",
        "Put a token into the user mapping: CREATE USER MAPPING FOR PUBLIC SERVER ... OPTIONS (bearer_token '...').");
  if (!url_part(url, CURLUPART_FRAGMENT).empty())
    refuse(option, "A URL's fragment (after #) is never sent.");
  if (value.find("${") != value.npos)
    refuse(option, "Variables such as ${event_type} are not filled in here.",
           "Make a sink for each URL, with events and aggregates, or write a dollar sign as %24.");
  return scheme;
}

void check_url(const std::string &name, const std::string &value) {
  parse_url(name, value);
}

void check_format(const std::string &name, const std::string &value) {
  if (value != "standard-webhooks")
    throw BadInput(OB_BAD_VALUE, name, "invalid value for option \"" + name + "\": \"" + value + "\"",
                   "Expected \"standard-webhooks\".");
}

milliseconds parse_timeout(const std::string &name, const std::string &value) {
  return parse_duration(name, value, milliseconds(100), milliseconds(300'000));
}
void check_timeout(const std::string &name, const std::string &value) {
  parse_timeout(name, value);
}

size_t parse_concurrency(const std::string &name, const std::string &value) {
  return static_cast<size_t>(parse_int(name, value, 1, 1000));
}
void check_concurrency(const std::string &name, const std::string &value) {
  parse_concurrency(name, value);
}

void check_bool(const std::string &name, const std::string &value) {
  parse_bool(name, value);
}
void check_networks(const std::string &name, const std::string &value) {
  parse_networks(name, value);
}

HttpHeaders parse_headers(const std::string &name, const std::string &value) {
  auto object = nlohmann::json::parse(value, nullptr, false);
  if (!object.is_object())
    refuse(name, "Expected a flat JSON object such as {\"X-Tenant\": \"42\"}.");
  HttpHeaders headers;
  for (auto &[key, item] : object.items()) {
    if (!item.is_string() && !item.is_number() && !item.is_boolean())
      refuse(name, "The value of header \"" + clean_text(key) + "\" is neither text nor a number nor a boolean.",
             "Expected a flat JSON object such as {\"X-Tenant\": \"42\"}.");
    std::string text = item.is_string() ? item.get<std::string>() : item.dump();
    check_http_header(key, text);
    if (lower(key) == "authorization")
      refuse(name, "Header \"" + key + "\" carries a secret, and server options are readable by everybody.",
             "Use bearer_token in the user mapping.");
    if (is_reserved(key))
      refuse(name, "Header \"" + key + "\" is written by the sink itself.");
    auto same = [wanted = lower(key)](auto &header) { return lower(header.first) == wanted; };
    if (std::any_of(headers.begin(), headers.end(), same))
      refuse(name, "Header \"" + key + "\" is given twice: upper and lower case are the same.");
    headers.emplace_back(key, text);
  }
  return headers;
}
void check_headers_option(const std::string &name, const std::string &value) {
  parse_headers(name, value);
}

void check_secret(const std::string &name, const std::string &value) {
  standard_webhooks::decode_secret(name, value);
}

void check_token(const std::string &name, const std::string &value) {
  if (value.empty() || !std::all_of(value.begin(), value.end(), [](unsigned char c) { return c > 0x20 && c < 0x7f; }))
    refuse(name, "A bearer token consists of visible ASCII characters, without spaces.");
}

const std::string *find(const Options *options, const char *name) {
  if (!options)
    return nullptr;
  auto found = options->find(name);
  return found == options->end() ? nullptr : &found->second;
}

}  // namespace

const std::vector<OptionSpec> &webhook_options() {
  static const auto &specs = *new std::vector<OptionSpec>{
      // name, in_server, in_mapping, secret, superuser
      {"url", true, true, false, false, check_url,
       "Where events are posted to. In the user mapping when it carries a token. https, unless allow_http is true."},
      {"format", true, false, false, false, check_format, "Body and headers: 'standard-webhooks', the default."},
      {"timeout", true, false, false, false, check_timeout,
       "How long one request may take, answer included: 100ms to 5min. Default 15s."},
      {"concurrency", true, false, false, false, check_concurrency,
       "Requests at the same time, of different keys: 1 to 1000. Default 32."},
      {"allow_http", true, false, false, false, check_bool, "Whether url may be http, unencrypted. Default false."},
      {"allow_networks", true, false, false, true, check_networks,
       "Networks that are not global and yet may be posted to, in CIDR notation: '10.0.0.0/8, fd00::/8'. Superuser "
       "only."},
      {"headers", true, false, false, false, check_headers_option,
       "Fixed request headers, a flat JSON object: '{\"X-Tenant\": \"42\"}'."},
      {"ca_pem", true, false, false, false, check_certificates_pem,
       "Certificates in PEM that the endpoint's must come from, instead of the system's authorities."},
      {"secret", false, true, true, false, check_secret,
       "Signs every request: 'whsec_' and the base64 of 24 to 64 random bytes. Without it requests are not signed."},
      {"bearer_token", false, true, true, false, check_token, "Sent as 'Authorization: Bearer ...'."},
  };
  return specs;
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
    refuse("url", "An http URL sends events unencrypted.", "Use https, or set the option allow_http to 'true'.");

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
