/*
 * webhook_oauth.cpp: the token endpoint gets the client's secret, so the rules of the sink's own URL hold for it:
 * https, and no inner network, unless a superuser allows it.
 */
#include "webhook_oauth.h"

namespace outbox {
namespace {

[[noreturn]] void missing(OptionName name, OptionName with, std::string hint) {
  throw BadInput(OB_MISSING_OPTION, name,
                 "option \"" + std::string(name) + "\" is required with \"" + with.text + "\"",
                 "The worker gets access tokens by URL, client id and client secret.", std::move(hint));
}

/* A request has one header Authorization. */
void check_other_kinds(const WebhookOptions &options, const Options &mapping) {
  const OptionName *other = find_option(mapping, TOKEN)                             ? &TOKEN
                            : find_option(mapping, USER)                            ? &USER
                            : find_header(options.mapping_headers, "authorization") ? &HEADERS
                                                                                    : nullptr;
  if (other)
    throw BadInput(OB_BAD_VALUE, *other,
                   "options \"oauth_token_url\" and \"" + std::string(*other) + "\" exclude each other",
                   "A request has one header Authorization, and each of them makes it.", "Leave one of them out.");
}

}  // namespace

void check_oauth(const WebhookOptions &options, const Options &server, const Options *mapping) {
  if (options.oauth_token_url.empty()) {
    for (OptionName name : {OAUTH_CLIENT_ID, OAUTH_PARAMETERS})
      if (find_option(server, name))
        missing(OAUTH_TOKEN_URL, name, "Use ALTER SERVER ... OPTIONS (ADD oauth_token_url 'https://...').");
    if (mapping && find_option(*mapping, OAUTH_CLIENT_SECRET))
      missing(OAUTH_TOKEN_URL, OAUTH_CLIENT_SECRET,
              "Use ALTER SERVER ... OPTIONS (ADD oauth_token_url 'https://...').");
    return;
  }
  if (options.oauth_client_id.empty())
    missing(OAUTH_CLIENT_ID, OAUTH_TOKEN_URL, "Use ALTER SERVER ... OPTIONS (ADD oauth_client_id '...').");
  if (!options.oauth_token_url.starts_with("https://") && !options.allow_http)
    throw_bad_value(OAUTH_TOKEN_URL, options.oauth_token_url,
                    "With an http URL the client secret would go unencrypted.",
                    "Use https, or let a superuser set the option allow_http to 'true'.");
  if (find_header(options.server_headers, "authorization"))
    refuse_value(HEADERS, "Option \"oauth_token_url\" makes the header Authorization.");
  if (!mapping)
    return;
  if (!find_option(*mapping, OAUTH_CLIENT_SECRET))
    missing(OAUTH_CLIENT_SECRET, OAUTH_TOKEN_URL,
            "Use CREATE USER MAPPING FOR PUBLIC SERVER ... OPTIONS (oauth_client_secret '...').");
  check_other_kinds(options, *mapping);
}

std::optional<OauthClient> oauth_client(const WebhookOptions &options) {
  if (options.oauth_token_url.empty())
    return std::nullopt;
  return OauthClient{.token_url = options.oauth_token_url,
                     .client_id = options.oauth_client_id,
                     .client_secret = options.oauth_client_secret,
                     .parameters = options.oauth_parameters,
                     .guard = options.guard,
                     .ca_pem = options.ca_pem,
                     .advice = "look at oauth_client_id, and at oauth_client_secret in the user mapping"};
}

}  // namespace outbox
