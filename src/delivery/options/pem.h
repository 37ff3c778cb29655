/* pem.h: certificates and private keys in PEM. Errors never contain the text. */
#pragma once

#include <optional>
#include <string>

#include "delivery/options/option_table.h"

namespace outbox {

/* The options of a client's certificate. */
inline constexpr OptionName SSL_CERTIFICATE_PEM{"ssl_certificate_pem"}, SSL_KEY_PEM{"ssl_key_pem"};

/* Requires one or more certificates. */
void check_certificates_pem(const std::string &name, const std::string &value); /* throws BadInput */

/* Requires a private key without a password: beside the key, in the user mapping, it would protect nothing. */
void check_key_pem(const std::string &name, const std::string &value); /* throws BadInput */

/* Requires the key of the certificate. Throws BadInput about one of the two options. */
void check_key_pair(const std::string &key, const std::string &certificate);

/* A client's certificate for mutual TLS; empty: none. */
struct ClientCertificate {
  std::string certificate_pem, key_pem; /* the key has no password */

  static std::vector<Row<ClientCertificate>> rows();
  /* After those of a user mapping were read: throws BadInput unless they are a pair. */
  void check_certificate() const;
  bool is_given() const { return !certificate_pem.empty(); }
};

/* Facts about a certificate as text: "CN=broker"; begin and end of its validity: "2026-11-20 17:15:08 UTC"; its
 * hosts: "a.example, 10.0.0.1"; its key: "RSA, 2048 bits". */
struct CertificateFacts {
  std::string subject, issuer, ends;
  bool expired;
  std::string begins = {}, hosts = {}, key = {};
};
/* Reads the first certificate of a PEM text, or one in DER; nothing if it cannot be read. */
std::optional<CertificateFacts> certificate_facts(const std::string &pem);
std::optional<CertificateFacts> certificate_facts(const void *der, size_t size);

/* Describes why OpenSSL refused a certificate with this error, and what to do. */
struct RefusedCertificate {
  std::string whose; /* "its", "the server's" */
  int depth;         /* in the chain; 0: the peer's own */
  CertificateFacts facts;
  std::string host_in; /* where the host is named: "the server in option hosts" */
};
std::string certificate_problem(int error, const RefusedCertificate &refused);

}  // namespace outbox
