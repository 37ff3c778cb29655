#include "delivery/formats/standard_webhooks.h"

#include <chrono>
#include <cstdio>
#include <ctime>
#include <stdexcept>

#include <nlohmann/json.hpp>
#include <openssl/evp.h>
#include <openssl/hmac.h>

#include "delivery/options.h"
#include "delivery/sink.h"
#include "delivery/uuid.h"

namespace outbox::standard_webhooks {
namespace {

constexpr std::string_view secret_prefix = "whsec_";
constexpr size_t min_secret = 24, max_secret = 64;

/* Empty when the text is no base64. */
std::string decode_base64(std::string_view text) {
  while (!text.empty() && text.back() == '=')
    text.remove_suffix(1);
  // EVP_DecodeBlock skips white space and wants whole blocks: judge the alphabet here, and pad.
  for (char c : text)
    if (!(c >= 'A' && c <= 'Z') && !(c >= 'a' && c <= 'z') && !(c >= '0' && c <= '9') && c != '+' && c != '/')
      return {};
  std::string padded(text);
  size_t padding = (4 - padded.size() % 4) % 4;
  if (padding == 3)
    return {};
  padded.append(padding, '=');
  std::string bytes(padded.size() / 4 * 3, '\0');
  int n = EVP_DecodeBlock(reinterpret_cast<unsigned char *>(bytes.data()),
                          reinterpret_cast<const unsigned char *>(padded.data()), static_cast<int>(padded.size()));
  if (n < 0)
    return {};
  bytes.resize(static_cast<size_t>(n) - padding);
  return bytes;
}

std::string quoted(std::string_view text) {
  return nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

}  // namespace

std::string decode_secret(const std::string &option, std::string_view secret) {
  if (secret.starts_with(secret_prefix))
    secret.remove_prefix(secret_prefix.size());
  std::string bytes;
  if (secret.size() <= 2 * max_secret)
    bytes = decode_base64(secret);
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
  unsigned char base64[2 * EVP_MAX_MD_SIZE];
  int n = EVP_EncodeBlock(base64, digest, static_cast<int>(digest_size));
  return "v1," + std::string(reinterpret_cast<char *>(base64), static_cast<size_t>(n));
}

std::string timestamp(int64_t unix_ms) {
  using namespace std::chrono;
  sys_time<milliseconds> time{milliseconds(unix_ms)};
  auto day = floor<days>(time);
  year_month_day date(day);
  hh_mm_ss clock(time - day);
  char text[64];
  snprintf(text, sizeof(text), "%04d-%02u-%02uT%02d:%02d:%02d.%03dZ", int(date.year()), unsigned(date.month()),
           unsigned(date.day()), int(clock.hours().count()), int(clock.minutes().count()),
           int(clock.seconds().count()), int(clock.subseconds().count()));
  return text;
}

std::string body(const ob_event &event) {
  if (event.payload_is_bytes)
    return std::string(view(event.payload));
  std::string text = "{\"id\":\"" + uuid_text(event.id) + "\",\"type\":" + quoted(view(event.event_type)) +
                     ",\"timestamp\":\"" + timestamp(event.created_at_ms) + "\",\"data\":";
  text.append(event.payload.data ? view(event.payload) : "null");
  text += '}';
  return text;
}

}  // namespace outbox::standard_webhooks
