/*
 * standard_webhooks.cpp: OpenSSL's HMAC over id, timestamp and body. An event keeps its id through all attempts, so
 * receivers can drop duplicates.
 */
#include "delivery/formats/standard_webhooks.h"

#include <stdexcept>

#include <openssl/evp.h>
#include <openssl/hmac.h>

#include "delivery/base/base64.h"
#include "delivery/base/text_view.h"
#include "delivery/base/time_text.h"
#include "delivery/base/uuid.h"
#include "delivery/formats/json_text.h"
#include "delivery/options/options.h"

namespace outbox::standard_webhooks {
namespace {

constexpr std::string_view secret_prefix = "whsec_";
constexpr size_t min_secret = 24, max_secret = 64;

}  // namespace

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

std::string sign(std::string_view key, std::string_view id, int64_t timestamp, std::string_view body) {
  std::string text;
  text.reserve(id.size() + body.size() + 24);
  text.append(id).append(".").append(std::to_string(timestamp)).append(".").append(body);
  unsigned char digest[EVP_MAX_MD_SIZE];
  unsigned int digest_size = 0;
  if (!HMAC(EVP_sha256(), key.data(), static_cast<int>(key.size()),
            reinterpret_cast<const unsigned char *>(text.data()), text.size(), digest, &digest_size))
    throw std::runtime_error("could not sign: HMAC-SHA256 is not available");
  std::string signature = "v1,";
  append_base64({reinterpret_cast<char *>(digest), digest_size}, signature);
  return signature;
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
