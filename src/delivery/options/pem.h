/* pem.h: certificates and private keys that a user gave as PEM text. What is thrown never holds the text. */
#pragma once

#include <optional>
#include <string>

#include "delivery/options/options.h"

namespace outbox {

/* One certificate or more. */
void check_certificates_pem(const std::string &name, const std::string &value); /* throws BadInput */

/* A private key, which may be encrypted. */
void check_key_pem(const std::string &name, const std::string &value); /* throws BadInput */

/* The two belong together, and `password` (null = none) opens the key. Throws BadInput about an option named
 * `key_name`, `password_name` or `certificate_name`. */
struct KeyPair {
  const std::string &key_name, &key;
  const std::string &certificate_name, &certificate;
  const std::string &password_name;
  const std::string *password;
};
void check_key_pair(const KeyPair &pair);

/* "CN=broker", when it ends and begins: "2026-11-20 17:15:08 UTC", the hosts that it is for: "a.example, 10.0.0.1",
 * and its key: "RSA, 2048 bits". */
struct CertificateFacts {
  std::string subject, issuer, ends;
  bool expired;
  std::string begins = {}, hosts = {}, key = {};
};
/* Of the first certificate in PEM text, or of one in DER; nothing when it cannot be read. */
std::optional<CertificateFacts> certificate_facts(const std::string &pem);
std::optional<CertificateFacts> certificate_facts(const void *der, size_t size);

}  // namespace outbox
