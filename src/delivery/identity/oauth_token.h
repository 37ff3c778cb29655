/*
 * oauth_token.h: access tokens by OAuth 2.0's client credentials grant (RFC 6749, section 4.4). A sink keeps a
 * Renewed<OauthToken> (renewed.h) whose fetch is OauthClient::fetch().
 */
#pragma once

#include <optional>
#include <string>

#include "delivery/http/network_guard.h"
#include "delivery/identity/renewed.h"
#include "delivery/options/flat_object.h"

namespace outbox {

struct OauthToken {
  std::string text;
};

/* Immutable: any thread. */
struct OauthClient {
  std::string token_url, client_id, client_secret;
  FlatObject parameters = {};             /* of the request, such as "scope" */
  std::optional<NetworkGuard> guard = {}; /* none: every address is allowed */
  std::string ca_pem = {}, ca_path = {};  /* as in HttpFetch */
  std::string advice = {};                /* where a user corrects client id and secret: ends the text of a refusal */

  /* Waits for the token endpoint, at most 10 s. Throws NotGranted, without a secret in its text. */
  Grant<OauthToken> fetch(const Stop &stop) const;
};

/* Checks of options: each throws BadInput. */
void check_token_url(const std::string &name, const std::string &value);
void check_oauth_text(const std::string &name, const std::string &value);
FlatObject parse_oauth_parameters(const std::string &name, const std::string &value);

}  // namespace outbox
