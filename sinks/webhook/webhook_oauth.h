/* webhook_oauth.h: the options of a webhook sink whose endpoint wants short-lived access tokens. */
#pragma once

#include <optional>

#include "delivery/identity/oauth_token.h"
#include "webhook_options.h"

namespace outbox {

/* Checks the options together; `mapping` is null if only those of the server are known. Throws BadInput. */
void check_oauth(const WebhookOptions &options, const Options &server, const Options *mapping);

/* Nothing if the sink uses no access tokens. For options that check_oauth() has accepted. */
std::optional<OauthClient> oauth_client(const WebhookOptions &options);

}  // namespace outbox
