/*
 * webhook_oauth.cpp: the token endpoint gets the client's secret, so the rules of the sink's own URL hold for it:
 * https, and no inner network, unless a superuser allows it.
 */
#include "webhook_oauth.h"

#include "delivery/http/http_headers.h"
#include "delivery/http/http_peer.h"
#include "webhook_options.h"

namespace outbox {
namespace {

[[noreturn]] void missing(OptionName name, OptionName with, std::string hint) {
  throw BadInput(OB_MISSING_OPTION, name,
                 "option \"" + std::string(name) + "\" is required with \"" + with.text + "\"",
                 "The worker gets access tokens by URL, client id and client secret.", std::move(hint));
}

/* A request has one header Authorization. */
void check_other_kinds(const Options &mapping) {
  auto *headers = find_option(mapping, HEADERS);
  const OptionName *other = find_option(mapping, BEARER_TOKEN) ? &BEARER_TOKEN
                            : find_option(mapping, USERNAME)   ? &USERNAME
                            : headers && find_header(parse_headers(HEADERS, *headers), "authorization") ? &HEADERS
                                                                                                        : nullptr;
  if (other)
    throw BadInput(OB_BAD_VALUE, *other,
                   "options \"oauth_token_url\" and \"" + std::string(*other) + "\" exclude each other",
                   "A request has one header Authorization, and each of them makes it.", "Leave one of them out.");
}

}  // namespace

void check_oauth(const Options &server, const Options *mapping) {
  auto *url = find_option(server, OAUTH_TOKEN_URL), *id = find_option(server, OAUTH_CLIENT_ID);
  if (!url) {
    for (OptionName name : {OAUTH_CLIENT_ID, OAUTH_SCOPE, OAUTH_AUDIENCE})
      if (find_option(server, name))
        missing(OAUTH_TOKEN_URL, name, "Use ALTER SERVER ... OPTIONS (ADD oauth_token_url 'https://...').");
    if (mapping && find_option(*mapping, OAUTH_CLIENT_SECRET))
      missing(OAUTH_TOKEN_URL, OAUTH_CLIENT_SECRET,
              "Use ALTER SERVER ... OPTIONS (ADD oauth_token_url 'https://...').");
    return;
  }
  if (!id)
    missing(OAUTH_CLIENT_ID, OAUTH_TOKEN_URL, "Use ALTER SERVER ... OPTIONS (ADD oauth_client_id '...').");
  auto *allow_http = find_option(server, ALLOW_HTTP);
  if (!url->starts_with("https://") && !(allow_http && parse_bool(ALLOW_HTTP, *allow_http)))
    throw_bad_value(OAUTH_TOKEN_URL, *url, "With an http URL the client secret would go unencrypted.",
                    "Use https, or let a superuser set the option allow_http to 'true'.");
  if (auto *headers = find_option(server, HEADERS);
      headers && find_header(parse_headers(HEADERS, *headers), "authorization"))
    refuse_value(HEADERS, "Option \"oauth_token_url\" makes the header Authorization.");
  if (!mapping)
    return;
  if (!find_option(*mapping, OAUTH_CLIENT_SECRET))
    missing(OAUTH_CLIENT_SECRET, OAUTH_TOKEN_URL,
            "Use CREATE USER MAPPING FOR PUBLIC SERVER ... OPTIONS (oauth_client_secret '...').");
  check_other_kinds(*mapping);
}

std::optional<OauthClient> parse_oauth(const Options &server, const Options &mapping, const NetworkGuard &guard) {
  auto *url = find_option(server, OAUTH_TOKEN_URL);
  if (!url)
    return std::nullopt;
  auto text = [](const Options &options, OptionName name) {
    auto *value = find_option(options, name);
    return value ? *value : std::string();
  };
  return OauthClient{.token_url = *url,
                     .client_id = text(server, OAUTH_CLIENT_ID),
                     .client_secret = text(mapping, OAUTH_CLIENT_SECRET),
                     .scope = text(server, OAUTH_SCOPE),
                     .audience = text(server, OAUTH_AUDIENCE),
                     .guard = guard,
                     .ca_pem = text(server, CA_PEM),
                     .advice = "look at oauth_client_id, and at oauth_client_secret in the user mapping"};
}

}  // namespace outbox
