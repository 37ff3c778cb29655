/* webhook_options.h: the options of outbox_webhook: where each may be set, and which values it takes. */
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "delivery/options/options.h"

namespace outbox {

inline constexpr OptionName METHOD{"method"}, BODY{"body"}, HEADER_PREFIX{"header_prefix"},
    IDEMPOTENCY_KEY{"idempotency_key"}, DISABLE_AFTER{"disable_after"}, FORWARD_HEADERS{"forward_headers"},
    OAUTH_TOKEN_URL{"oauth_token_url"}, OAUTH_CLIENT_ID{"oauth_client_id"}, OAUTH_SCOPE{"oauth_scope"},
    OAUTH_AUDIENCE{"oauth_audience"}, SECRET{"secret"}, OLD_SECRET{"old_secret"},
    OAUTH_CLIENT_SECRET{"oauth_client_secret"}, USERNAME{"username"};

const std::vector<OptionSpec> &webhook_options();

/* Parsers of values; each throws BadInput. */
std::chrono::milliseconds disable_after_of(const Options &server); /* 0 = never */
std::string parse_method(const std::string &name, const std::string &value);

}  // namespace outbox
