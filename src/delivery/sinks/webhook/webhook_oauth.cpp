/*
 * webhook_oauth.cpp: the token endpoint gets the client's secret, so the rules of the sink's own URL hold for it:
 * https, and no inner network, unless a superuser allows it.
 */
#include "delivery/sinks/webhook/webhook_oauth.h"

#include "delivery/http/http_headers.h"

namespace outbox {
namespace {

[[noreturn]] void missing(const char *name, const char *with, std::string hint) {
  throw BadInput(OB_MISSING_OPTION, name, "option \"" + std::string(name) + "\" is required with \"" + with + "\"",
                 "The worker gets access tokens by URL, client id and client secret.", std::move(hint));
}

/* A request has one header Authorization. */
void check_other_kinds(const Options &mapping) {
  auto *headers = find_option(mapping, "headers");
  const char *other = find_option(mapping, "bearer_token")                                          ? "bearer_token"
                      : find_option(mapping, "username")                                            ? "username"
                      : headers && find_header(parse_headers("headers", *headers), "authorization") ? "headers"
                                                                                                    : nullptr;
  if (other)
    throw BadInput(OB_BAD_VALUE, other,
                   "options \"oauth_token_url\" and \"" + std::string(other) + "\" exclude each other",
                   "A request has one header Authorization, and each of them makes it.", "Leave one of them out.");
}

}  // namespace

void check_oauth(const Options &server, const Options *mapping) {
  auto *url = find_option(server, "oauth_token_url"), *id = find_option(server, "oauth_client_id");
  if (!url) {
    for (const char *name : {"oauth_client_id", "oauth_scope", "oauth_audience"})
      if (find_option(server, name))
        missing("oauth_token_url", name, "Use ALTER SERVER ... OPTIONS (ADD oauth_token_url 'https://...').");
    if (mapping && find_option(*mapping, "oauth_client_secret"))
      missing("oauth_token_url", "oauth_client_secret",
              "Use ALTER SERVER ... OPTIONS (ADD oauth_token_url 'https://...').");
    return;
  }
  if (!id)
    missing("oauth_client_id", "oauth_token_url", "Use ALTER SERVER ... OPTIONS (ADD oauth_client_id '...').");
  auto *allow_http = find_option(server, "allow_http");
  if (!url->starts_with("https://") && !(allow_http && parse_bool("allow_http", *allow_http)))
    throw_bad_value("oauth_token_url", *url, "With an http URL the client secret would go unencrypted.",
                    "Use https, or let a superuser set the option allow_http to 'true'.");
  if (auto *headers = find_option(server, "headers");
      headers && find_header(parse_headers("headers", *headers), "authorization"))
    refuse_value("headers", "Option \"oauth_token_url\" makes the header Authorization.");
  if (!mapping)
    return;
  if (!find_option(*mapping, "oauth_client_secret"))
    missing("oauth_client_secret", "oauth_token_url",
            "Use CREATE USER MAPPING FOR PUBLIC SERVER ... OPTIONS (oauth_client_secret '...').");
  check_other_kinds(*mapping);
}

std::optional<OauthClient> parse_oauth(const Options &server, const Options &mapping, const NetworkGuard &guard) {
  auto *url = find_option(server, "oauth_token_url");
  if (!url)
    return std::nullopt;
  auto text = [](const Options &options, const char *name) {
    auto *value = find_option(options, name);
    return value ? *value : std::string();
  };
  return OauthClient{.token_url = *url,
                     .client_id = text(server, "oauth_client_id"),
                     .client_secret = text(mapping, "oauth_client_secret"),
                     .scope = text(server, "oauth_scope"),
                     .audience = text(server, "oauth_audience"),
                     .guard = guard,
                     .ca_pem = text(server, "ca_pem"),
                     .advice = "look at oauth_client_id, and at oauth_client_secret in the user mapping"};
}

}  // namespace outbox
