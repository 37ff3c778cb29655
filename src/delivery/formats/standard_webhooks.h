/*
 * standard_webhooks.h: the Standard Webhooks format (https://www.standardwebhooks.com): body and signature.
 * No state that changes: any thread.
 */
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <openssl/types.h>

#include "delivery/kind.h"

namespace outbox::standard_webhooks {

/* A key that signs: a secret of 24 to 64 bytes that receivers share (whsec_..., the prefix is optional), or the
 * private key of a pair (whsk_...), of which receivers have the public one. */
class SigningKey {
public:
  /* Both throw BadInput, which never contains the value. A list has one key or two, separated by a comma. */
  static std::vector<SigningKey> parse_list(const std::string &option, const std::string &text);
  static SigningKey parse(const std::string &option, const std::string &text);
  /* A signature of the webhook-signature header, of id.timestamp.body: 'v1,' and base64 of an HMAC-SHA256, or 'v1a,'
   * and base64 of a signature by Ed25519. */
  std::string sign(std::string_view id, int64_t timestamp, std::string_view body) const;
  /* 'whpk_...', for receivers; empty for a shared secret. */
  const std::string &public_key() const { return public_key_; }
  bool operator==(const SigningKey &other) const {
    return bytes_ == other.bytes_ && public_key_ == other.public_key_;
  }

private:
  std::string bytes_, public_key_;
  std::shared_ptr<const EVP_MAC_CTX> hmac_; /* of a shared secret: it has taken the key, and is copied to sign */
};

/* {"id", "type", "timestamp", "data"}. The payload's text is inserted unchanged, so that numbers keep all digits; a
 * NULL payload is null. A payload of raw bytes is itself the body. */
std::string body(const ob_event &event);

/* 2024-05-01T12:00:00.123Z */
std::string timestamp(int64_t unix_ms);

}  // namespace outbox::standard_webhooks
