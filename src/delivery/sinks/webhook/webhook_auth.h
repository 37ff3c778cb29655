/* webhook_auth.h: with what a webhook sink proves who it is: the secrets of its user mapping. */
#pragma once

#include <string>
#include <vector>

#include "delivery/base/secret_mask.h"
#include "delivery/options/options.h"
#include "delivery/sinks/webhook/webhook_headers.h"

namespace outbox {

struct WebhookAuth {
  std::vector<std::string> signing_keys;  // both sign during a rotation, the new one first; none: not signed
  HttpHeaders headers;                    // Authorization, and those of the user mapping
  std::string certificate_pem, key_pem, key_password;

  /* Of a user mapping: each option by itself was checked, here what they are to each other. Throws BadInput. */
  static WebhookAuth parse(const Options &mapping);
};

/* All of a user mapping that no text may show. */
SecretMask webhook_secrets(const Options &mapping);

/* Options; each throws BadInput. */
void check_bearer_token(const std::string &name, const std::string &value);
void check_username(const std::string &name, const std::string &value);
void check_password(const std::string &name, const std::string &value);

}  // namespace outbox
