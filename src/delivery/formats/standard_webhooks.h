/*
 * standard_webhooks.h: the Standard Webhooks format (https://www.standardwebhooks.com): body and signature.
 * Pure functions: no state, any thread.
 */
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "delivery/kind.h"

namespace outbox::standard_webhooks {

/* Decodes 'whsec_' + base64 (the prefix is optional). Throws BadInput, which never contains the value, unless there
 * are 24 to 64 bytes. */
std::string decode_secret(const std::string &option, std::string_view secret);

/* A signature of the webhook-signature header: 'v1,' + base64(HMAC-SHA256(key, id.timestamp.body)). */
std::string sign(std::string_view key, std::string_view id, int64_t timestamp, std::string_view body);

/* A key that signs: a secret that receivers share (whsec_...), or the private key of a pair (whsk_...), of which
 * receivers have the public one. */
class SigningKey {
public:
  /* Throws BadInput, which never contains the value. */
  static SigningKey parse(const std::string &option, const std::string &text);
  /* A signature by 'v1', or by 'v1a': base64 of that by Ed25519. */
  std::string sign(std::string_view id, int64_t timestamp, std::string_view body) const;
  /* 'whpk_...', for receivers; empty for a shared secret. */
  const std::string &public_key() const { return public_key_; }
  bool operator==(const SigningKey &other) const = default;

private:
  std::string bytes_, public_key_;
};

/* {"id", "type", "timestamp", "data"}. The payload's text is inserted unchanged, so that numbers keep all digits; a
 * NULL payload is null. A payload of raw bytes is itself the body. */
std::string body(const ob_event &event);

/* 2024-05-01T12:00:00.123Z */
std::string timestamp(int64_t unix_ms);

}  // namespace outbox::standard_webhooks
