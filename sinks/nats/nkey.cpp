/*
 * nkey.cpp: an nkey is base32 of a prefix, the key, and a CRC-16 of both. The prefix of a seed also says for what it
 * is: only a user logs in.
 */
#include "nkey.h"

#include <openssl/evp.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <stdexcept>

#include "delivery/base/base64.h"
#include "delivery/base/text.h"
#include "delivery/options/options.h"

namespace outbox::nats {
namespace {

constexpr std::string_view alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567";
constexpr unsigned char user_prefix = 20 << 3;  /* its first character is U */
constexpr unsigned char seed_prefix = 18 << 3;  /* S; the prefix of its use follows in the next bits */
constexpr size_t prefix_size = 2, crc_size = 2; /* of a seed */

std::optional<std::string> base32_decoded(std::string_view text) {
  std::string bytes;
  uint32_t bits = 0;
  int n = 0;
  for (char c : text) {
    size_t value = alphabet.find(c);
    if (value == alphabet.npos)
      return std::nullopt;
    bits = (bits << 5 | static_cast<uint32_t>(value)) & 0xFFFF;
    if ((n += 5) >= 8)
      bytes += static_cast<char>(bits >> (n -= 8));
  }
  return bytes;
}

std::string base32(std::string_view bytes) {
  std::string text;
  uint32_t bits = 0;
  int n = 0;
  for (char c : bytes) {
    bits = (bits << 8 | static_cast<unsigned char>(c)) & 0xFFFF;
    for (n += 8; n >= 5;)
      text += alphabet[bits >> (n -= 5) & 31];
  }
  if (n > 0)
    text += alphabet[bits << (5 - n) & 31];
  return text;
}

/* CRC-16/XMODEM, low byte first. */
std::string crc_of(std::string_view bytes) {
  uint16_t crc = 0;
  for (char c : bytes) {
    crc = static_cast<uint16_t>(crc ^ static_cast<unsigned char>(c) << 8);
    for (int bit = 0; bit < 8; bit++)
      crc = static_cast<uint16_t>(crc & 0x8000 ? crc << 1 ^ 0x1021 : crc << 1);
  }
  return {static_cast<char>(crc & 0xFF), static_cast<char>(crc >> 8)};
}

struct FreeKey {
  void operator()(EVP_PKEY *key) const { EVP_PKEY_free(key); }
  void operator()(EVP_MD_CTX *context) const { EVP_MD_CTX_free(context); }
};

std::unique_ptr<EVP_PKEY, FreeKey> key_of(const std::array<unsigned char, 32> &seed) {
  std::unique_ptr<EVP_PKEY, FreeKey> key(
      EVP_PKEY_new_raw_private_key(EVP_PKEY_ED25519, nullptr, seed.data(), seed.size()));
  if (!key)
    throw std::runtime_error("OpenSSL makes no Ed25519 key");
  return key;
}

/* The line after the one that contains `begin`; empty if there is none. */
std::string_view line_after(std::string_view text, std::string_view begin) {
  bool found = false;
  for (std::string_view line : split(text, '\n')) {
    if (found && !line.empty())
      return line;
    found = found || line.find(begin) != line.npos;
  }
  return {};
}

}  // namespace

Nkey Nkey::parse(const std::string &name, std::string_view seed) {
  Nkey key;
  std::optional<std::string> bytes = base32_decoded(trim(seed));
  const size_t size = prefix_size + key.seed_.size() + crc_size;
  if (!bytes || bytes->size() != size || crc_of(bytes->substr(0, size - crc_size)) != bytes->substr(size - crc_size))
    refuse_value(name, "Expected the seed of an nkey: 58 capital letters and digits that begin with SU.");
  const auto first = static_cast<unsigned char>((*bytes)[0]), second = static_cast<unsigned char>((*bytes)[1]);
  if ((first & 0xF8) != seed_prefix || ((first & 7) << 5 | second >> 3) != user_prefix)
    refuse_value(name, "It is an nkey, but not the seed of a user, which begins with SU.");
  std::copy_n(bytes->begin() + prefix_size, key.seed_.size(), key.seed_.begin());
  return key;
}

std::string Nkey::public_key() const {
  std::array<unsigned char, 32> raw{};
  size_t size = raw.size();
  if (EVP_PKEY_get_raw_public_key(key_of(seed_).get(), raw.data(), &size) != 1)
    throw std::runtime_error("OpenSSL gives no public key");
  std::string bytes(1, static_cast<char>(user_prefix));
  bytes.append(raw.begin(), raw.end());
  return base32(bytes + crc_of(bytes));
}

std::string Nkey::sign(std::string_view nonce) const {
  std::array<unsigned char, 64> raw{};
  size_t size = raw.size();
  auto key = key_of(seed_);
  std::unique_ptr<EVP_MD_CTX, FreeKey> context(EVP_MD_CTX_new());
  if (!context || EVP_DigestSignInit(context.get(), nullptr, nullptr, nullptr, key.get()) != 1 ||
      EVP_DigestSign(context.get(), raw.data(), &size, reinterpret_cast<const unsigned char *>(nonce.data()),
                     nonce.size()) != 1)
    throw std::runtime_error("OpenSSL does not sign");
  std::string text;
  append_base64({reinterpret_cast<const char *>(raw.data()), size}, text);
  text.erase(text.find_last_not_of('=') + 1);
  std::replace(text.begin(), text.end(), '+', '-');
  std::replace(text.begin(), text.end(), '/', '_');
  return text;
}

Credentials Credentials::parse(const std::string &name, const std::string &text) {
  Credentials made{std::string(line_after(text, "BEGIN NATS USER JWT")),
                   std::string(line_after(text, "BEGIN USER NKEY SEED")),
                   {}};
  if (const std::string_view whole = trim(text); whole.starts_with("SU") && whole.find('\n') == whole.npos)
    made = {{}, std::string(whole), {}};
  else if (made.jwt.empty() || made.seed.empty())
    refuse_value(
        name,
        "Expected the content of a .creds file, with a NATS USER JWT and a USER NKEY SEED, or the seed of an "
        "nkey, which begins with SU.",
        "`nsc generate creds` writes such a file.");
  made.nkey = Nkey::parse(name, made.seed);
  return made;
}

}  // namespace outbox::nats
