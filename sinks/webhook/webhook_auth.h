/* webhook_auth.h: the credentials of a webhook sink: the secrets of its user mapping. */
#pragma once

#include <string>
#include <vector>

#include "delivery/base/secret_mask.h"
#include "delivery/formats/standard_webhooks.h"
#include "delivery/options/options.h"
#include "delivery/http/http_headers.h"

namespace outbox {

struct WebhookAuth {
  // The new key first; during a rotation both sign; empty: not signed.
  std::vector<standard_webhooks::SigningKey> signing_keys;
  HttpHeaders headers;  // Authorization, and the headers of the user mapping

  /* Parses a user mapping whose options were checked one by one, and checks their combinations. Throws BadInput. */
  static WebhookAuth parse(const Options &mapping);
};

/* All secrets of a user mapping, which no text may show. */
SecretMask webhook_secrets(const Options &mapping);

/* Checks of options; each throws BadInput. */
void check_username(const std::string &name, const std::string &value);
void check_password(const std::string &name, const std::string &value);

}  // namespace outbox
