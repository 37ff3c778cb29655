/* webhook_auth.h: the credentials of a webhook sink: the secrets of its user mapping. */
#pragma once

#include <string>
#include <vector>

#include "delivery/base/secret_mask.h"
#include "delivery/formats/standard_webhooks.h"
#include "delivery/http/http_headers.h"
#include "webhook_options.h"

namespace outbox {

struct WebhookAuth {
  // The new key first; during a rotation both sign; empty: not signed.
  std::vector<standard_webhooks::SigningKey> signing_keys;
  HttpHeaders headers;  // Authorization, and the headers of the user mapping

  /* Checks the options of a user mapping together. Throws BadInput. */
  static WebhookAuth of(const WebhookOptions &options, const Options &mapping);
};

/* Adds the secrets of a user mapping, which no text may show, but for those of the connection. */
void add_webhook_secrets(const WebhookOptions &options, const Options &mapping, SecretMask &secrets);

/* Checks of options; each throws BadInput. */
void check_username(const std::string &name, const std::string &value);
void check_password(const std::string &name, const std::string &value);

}  // namespace outbox
