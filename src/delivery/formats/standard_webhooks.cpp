/*
 * standard_webhooks.cpp: OpenSSL's HMAC or Ed25519 over id, timestamp and body. An event keeps its id through all
 * attempts, so receivers can drop duplicates.
 */
#include "delivery/formats/standard_webhooks.h"

#include <memory>
#include <stdexcept>

#include <openssl/core_names.h>
#include <openssl/evp.h>
#include <openssl/params.h>

#include "delivery/base/base64.h"
#include "delivery/base/text.h"
#include "delivery/base/text_view.h"
#include "delivery/base/time_text.h"
#include "delivery/base/uuid.h"
#include "delivery/formats/json_text.h"
#include "delivery/options/options.h"

namespace outbox::standard_webhooks {
namespace {

constexpr std::string_view secret_prefix = "whsec_";
constexpr size_t min_secret = 24, max_secret = 64;

constexpr std::string_view private_prefix = "whsk_", public_prefix = "whpk_";
constexpr size_t ed25519_bytes = 32; /* of a private key, and of a public one */

std::string decode_secret(const std::string &option, std::string_view secret) {
  if (secret.starts_with(secret_prefix))
    secret.remove_prefix(secret_prefix.size());
  std::string bytes;
  if (secret.size() <= 2 * max_secret)
    append_base64_decoded(secret, bytes);
  if (bytes.size() < min_secret || bytes.size() > max_secret)
    throw BadInput(OB_BAD_VALUE, option, "invalid value for option \"" + option + "\"",
                   "A signing secret is whsec_ followed by the base64 of 24 to 64 random bytes.",
                   "Make one in a shell: echo \"whsec_$(openssl rand -base64 32)\"");
  return bytes;
}

/* To set the key costs more than to sign 300 bytes: 2.0 µs a signature with it, 0.9 µs with a copy of what has it. */
std::shared_ptr<const EVP_MAC_CTX> hmac_with(std::string_view key) {
  std::unique_ptr<EVP_MAC, decltype(&EVP_MAC_free)> hmac(EVP_MAC_fetch(nullptr, OSSL_MAC_NAME_HMAC, nullptr),
                                                         EVP_MAC_free);
  std::shared_ptr<EVP_MAC_CTX> context(hmac ? EVP_MAC_CTX_new(hmac.get()) : nullptr, EVP_MAC_CTX_free);
  char digest[] = OSSL_DIGEST_NAME_SHA2_256;
  const OSSL_PARAM parameters[] = {OSSL_PARAM_construct_utf8_string(OSSL_MAC_PARAM_DIGEST, digest, 0),
                                   OSSL_PARAM_construct_end()};
  if (!context ||
      EVP_MAC_init(context.get(), reinterpret_cast<const unsigned char *>(key.data()), key.size(), parameters) != 1)
    throw std::runtime_error("could not sign: HMAC-SHA256 is not available");
  return context;
}

std::string sign_hmac(const EVP_MAC_CTX &with_key, std::string_view start, std::string_view body) {
  std::unique_ptr<EVP_MAC_CTX, decltype(&EVP_MAC_CTX_free)> context(EVP_MAC_CTX_dup(&with_key), EVP_MAC_CTX_free);
  const auto add = [&](std::string_view text) {
    return EVP_MAC_update(context.get(), reinterpret_cast<const unsigned char *>(text.data()), text.size()) == 1;
  };
  unsigned char digest[EVP_MAX_MD_SIZE];
  size_t size = 0;
  if (!context || !add(start) || !add(body) || EVP_MAC_final(context.get(), digest, &size, sizeof digest) != 1)
    throw std::runtime_error("could not sign: HMAC-SHA256 is not available");
  std::string value = "v1,";
  append_base64({reinterpret_cast<char *>(digest), size}, value);
  return value;
}

using PrivateKey = std::unique_ptr<EVP_PKEY, decltype(&EVP_PKEY_free)>;

PrivateKey private_key(std::string_view bytes) {
  PrivateKey key(EVP_PKEY_new_raw_private_key(EVP_PKEY_ED25519, nullptr,
                                              reinterpret_cast<const unsigned char *>(bytes.data()), ed25519_bytes),
                 EVP_PKEY_free);
  if (!key)
    throw std::runtime_error("could not sign: Ed25519 is not available");
  return key;
}

std::string public_bytes(std::string_view bytes) {
  unsigned char found[ed25519_bytes];
  size_t size = sizeof found;
  if (EVP_PKEY_get_raw_public_key(private_key(bytes).get(), found, &size) != 1)
    throw std::runtime_error("could not sign: Ed25519 is not available");
  return {reinterpret_cast<char *>(found), size};
}

std::string sign_ed25519(std::string_view bytes, std::string_view text) {
  std::unique_ptr<EVP_MD_CTX, decltype(&EVP_MD_CTX_free)> context(EVP_MD_CTX_new(), EVP_MD_CTX_free);
  PrivateKey key = private_key(bytes);
  unsigned char signature[2 * ed25519_bytes];
  size_t size = sizeof signature;
  if (!context || EVP_DigestSignInit(context.get(), nullptr, nullptr, nullptr, key.get()) != 1 ||
      EVP_DigestSign(context.get(), signature, &size, reinterpret_cast<const unsigned char *>(text.data()),
                     text.size()) != 1)
    throw std::runtime_error("could not sign: Ed25519 is not available");
  std::string value = "v1a,";
  append_base64({reinterpret_cast<char *>(signature), size}, value);
  return value;
}

}  // namespace

/* Libraries write a private key with the public one behind it, or alone. */
std::vector<SigningKey> SigningKey::parse_list(const std::string &option, const std::string &text) {
  std::vector<SigningKey> keys;
  for (std::string_view each : split(text, ','))
    keys.push_back(parse(option, std::string(each)));
  const char *rotation =
      "During a rotation give the new key and the one that receivers still know: 'whsec_..., whsec_...'.";
  if (keys.size() > 2)
    refuse_value(option, "It has more than two keys.", rotation);
  if (keys.size() == 2 && keys[0] == keys[1])
    refuse_value(option, "It has the same key twice.", rotation);
  return keys;
}

SigningKey SigningKey::parse(const std::string &option, const std::string &text) {
  SigningKey key;
  if (!text.starts_with(private_prefix)) {
    key.bytes_ = decode_secret(option, text);
    key.hmac_ = hmac_with(key.bytes_);
    return key;
  }
  std::string bytes;
  if (text.size() <= 2 * max_secret)
    append_base64_decoded(std::string_view(text).substr(private_prefix.size()), bytes);
  bool alone = bytes.size() == ed25519_bytes, pair = bytes.size() == 2 * ed25519_bytes;
  if (!alone && !(pair && bytes.substr(ed25519_bytes) == public_bytes(bytes)))
    throw BadInput(
        OB_BAD_VALUE, option, "invalid value for option \"" + option + "\"",
        "A private signing key is whsk_ followed by the base64 of an Ed25519 key: 32 bytes, or 64 with its "
        "public key.",
        "Make one in a shell: echo \"whsk_$(openssl genpkey -algorithm ed25519 -outform DER | tail -c 32 | "
        "base64)\"");
  bytes.resize(ed25519_bytes);
  key.public_key_ = public_prefix;
  append_base64(public_bytes(bytes), key.public_key_);
  key.bytes_ = std::move(bytes);
  return key;
}

std::string SigningKey::sign(std::string_view id, int64_t timestamp, std::string_view body) const {
  std::string start(id);
  start.append(".").append(std::to_string(timestamp)).append(".");
  return hmac_ ? sign_hmac(*hmac_, start, body) : sign_ed25519(bytes_, start.append(body));
}

std::string timestamp(int64_t unix_ms) {
  std::string text;
  append_time(unix_ms * 1000, text);
  return text.erase(text.size() - 4, 3); /* cut microseconds to milliseconds */
}

std::string body(const ob_event &event) {
  if (event.payload_is_bytes)
    return std::string(view(event.payload));
  std::string text = "{\"id\":\"" + uuid_text(event.id) + "\",\"type\":";
  append_repaired_json_string(view(event.event_type), text);
  text.append(",\"timestamp\":\"").append(timestamp(floor_ms(event.created_at_us))).append("\",\"data\":");
  text.append(event.payload.data ? view(event.payload) : "null");
  text += '}';
  return text;
}

}  // namespace outbox::standard_webhooks
