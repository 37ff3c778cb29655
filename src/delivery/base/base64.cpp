/*
 * base64.cpp: OpenSSL's EVP_EncodeBlock() and EVP_DecodeBlock() do the work. The decoder here adds what they lack:
 * it refuses characters outside the alphabet and accepts text without padding.
 */
#include "delivery/base/base64.h"

#include <openssl/evp.h>

namespace outbox {

bool append_base64_decoded(std::string_view text, std::string &out) {
  if (text.size() % 4 == 0)
    for (int i = 0; i < 2 && text.ends_with('='); i++)
      text.remove_suffix(1);
  // EVP_DecodeBlock skips white space and needs whole blocks: check the alphabet and add the padding here.
  for (char c : text)
    if (!(c >= 'A' && c <= 'Z') && !(c >= 'a' && c <= 'z') && !(c >= '0' && c <= '9') && c != '+' && c != '/')
      return false;
  size_t padding = (4 - text.size() % 4) % 4;
  if (padding == 3)
    return false;
  std::string padded(text);
  padded.append(padding, '=');
  size_t before = out.size();
  out.resize(before + padded.size() / 4 * 3);
  int n = EVP_DecodeBlock(reinterpret_cast<unsigned char *>(out.data() + before),
                          reinterpret_cast<const unsigned char *>(padded.data()), static_cast<int>(padded.size()));
  out.resize(n < 0 ? before : before + static_cast<size_t>(n) - padding);
  return n >= 0;
}

void append_base64(std::string_view bytes, std::string &out) {
  size_t before = out.size();
  out.resize(before + (bytes.size() + 2) / 3 * 4 + 1); /* EVP_EncodeBlock adds a NUL */
  int n = EVP_EncodeBlock(reinterpret_cast<unsigned char *>(out.data() + before),
                          reinterpret_cast<const unsigned char *>(bytes.data()), static_cast<int>(bytes.size()));
  out.resize(before + static_cast<size_t>(n));
}

}  // namespace outbox
