/*
 * pem.cpp: OpenSSL parses the text when CREATE USER MAPPING runs, so a broken key is an error there and not a
 * failing sink later. Errors never contain the text. A key that a password protects is refused without a look into
 * it: its author has chosen how long the derivation of the password takes, up to half an hour.
 */
#include "delivery/options/pem.h"

#include <algorithm>
#include <cstdint>
#include <ctime>
#include <memory>
#include <string_view>

#include <arpa/inet.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/x509.h>
#include <openssl/x509v3.h>

namespace outbox {

using Bio = std::unique_ptr<BIO, decltype(&BIO_free)>;
using Certificate = std::unique_ptr<X509, decltype(&X509_free)>;
using Key = std::unique_ptr<EVP_PKEY, decltype(&EVP_PKEY_free)>;

/* Clears OpenSSL's error queue of this thread, because other code on this thread reads it. */
struct ErrorsForgotten {
  ~ErrorsForgotten() { ERR_clear_error(); }
};

static Bio reader(const std::string &text) {
  Bio bio(BIO_new_mem_buf(text.data(), static_cast<int>(text.size())), BIO_free);
  if (!bio)
    throw std::bad_alloc();
  return bio;
}

static Certificate next_certificate(BIO *bio) {
  return {PEM_read_bio_X509(bio, nullptr, nullptr, nullptr), X509_free};
}

void check_certificates_pem(const std::string &name, const std::string &value) {
  ErrorsForgotten at_end;
  Bio bio = reader(value);
  int certificates = 0;
  while (next_certificate(bio.get()))
    certificates++;
  if (certificates == 0 || ERR_GET_REASON(ERR_peek_last_error()) != PEM_R_NO_START_LINE)
    refuse_value(name, "Expected certificates in PEM, beginning with -----BEGIN CERTIFICATE-----.");
}

/* ---- reading a key ---- */

/* One block of a PEM text: its name, header and bytes. */
class Block {
public:
  Block() = default;
  Block(const Block &) = delete;
  Block &operator=(const Block &) = delete;
  ~Block() { forget(); }
  bool read(BIO *from) {
    forget();
    return PEM_read_bio(from, &name_, &header_, &bytes_, &size_) == 1;
  }
  std::string_view name() const { return name_; }
  bool has_header() const { return *header_ != '\0'; }
  const unsigned char *bytes() const { return bytes_; }
  long size() const { return size_; }

private:
  void forget() {
    OPENSSL_free(name_);
    OPENSSL_free(header_);
    if (bytes_)
      OPENSSL_clear_free(bytes_, static_cast<size_t>(size_));
    name_ = header_ = nullptr;
    bytes_ = nullptr;
  }

  char *name_ = nullptr, *header_ = nullptr;
  unsigned char *bytes_ = nullptr;
  long size_ = 0;
};

using Pkcs8 = std::unique_ptr<PKCS8_PRIV_KEY_INFO, decltype(&PKCS8_PRIV_KEY_INFO_free)>;

static Key key_of(const Pkcs8 &from) {
  return {from ? EVP_PKCS82PKEY(from.get()) : nullptr, EVP_PKEY_free};
}

/* The first private key of the text; null if there is none, or it cannot be read. Throws BadInput for one that a
 * password protects: in PKCS #8, or in the older form, whose header says so. */
static Key read_key(const std::string &name, const std::string &text) {
  Bio bio = reader(text);
  for (Block block; block.read(bio.get());) {
    const int type = block.name() == PEM_STRING_RSA            ? EVP_PKEY_RSA
                     : block.name() == PEM_STRING_ECPRIVATEKEY ? EVP_PKEY_EC
                     : block.name() == PEM_STRING_DSA          ? EVP_PKEY_DSA
                                                               : EVP_PKEY_NONE;
    const bool is_plain = block.name() == PEM_STRING_PKCS8INF;
    if (block.name() == PEM_STRING_PKCS8 || ((is_plain || type != EVP_PKEY_NONE) && block.has_header()))
      refuse_value(name, "The key is protected by a password.",
                   "Remove the password: openssl pkey -in protected.pem -out key.pem. The user mapping keeps the key "
                   "secret.");
    const unsigned char *at = block.bytes();
    if (type != EVP_PKEY_NONE)
      return {d2i_PrivateKey(type, nullptr, &at, block.size()), EVP_PKEY_free};
    if (is_plain)
      return key_of({d2i_PKCS8_PRIV_KEY_INFO(nullptr, &at, block.size()), PKCS8_PRIV_KEY_INFO_free});
  }
  return {nullptr, EVP_PKEY_free};
}

static Key must_read_key(const std::string &name, const std::string &text) {
  Key key = read_key(name, text);
  if (!key)
    refuse_value(name, "Expected a private key in PEM, beginning with -----BEGIN PRIVATE KEY----- or the like.");
  return key;
}

void check_key_pem(const std::string &name, const std::string &value) {
  ErrorsForgotten at_end;
  must_read_key(name, value);
}

void check_key_pair(const std::string &key_pem, const std::string &certificate_pem) {
  ErrorsForgotten at_end;
  Key key = must_read_key(SSL_KEY_PEM, key_pem);
  Certificate certificate = next_certificate(reader(certificate_pem).get());
  if (!certificate)
    refuse_value(SSL_CERTIFICATE_PEM, "Expected a certificate in PEM.");
  if (X509_check_private_key(certificate.get(), key.get()) != 1)
    refuse_value(SSL_KEY_PEM, "It is not the key of the certificate in option \"ssl_certificate_pem\".",
                 "The client's own certificate comes first in \"ssl_certificate_pem\", before those of its "
                 "authorities.");
}

std::vector<Row<ClientCertificate>> ClientCertificate::rows() {
  using Of = ClientCertificate;
  return {
      row(SSL_CERTIFICATE_PEM, &Of::certificate_pem, Text{check_certificates_pem, "PEM"},
          "The client's certificate; its authorities may follow.")
          .in_user_mapping(),
      row(SSL_KEY_PEM, &Of::key_pem, Text{check_key_pem, "PEM"}, "The certificate's private key, without a password.")
          .as_secret(),
  };
}

void ClientCertificate::check_certificate() const {
  auto required = [](const std::string &name, const char *with) {
    throw BadInput(OB_MISSING_OPTION, name, "option \"" + name + "\" is required with \"" + with + "\"",
                   "The peer is shown the certificate, and the key proves it.",
                   "Use CREATE USER MAPPING FOR PUBLIC SERVER ... OPTIONS (" + name + " '...').");
  };
  if (certificate_pem.empty() && key_pem.empty())
    return;
  if (certificate_pem.empty())
    required(SSL_CERTIFICATE_PEM, SSL_KEY_PEM.text);
  if (key_pem.empty())
    required(SSL_KEY_PEM, SSL_CERTIFICATE_PEM.text);
  check_key_pair(key_pem, certificate_pem);
}

static std::string name_text(const X509_NAME *name) {
  Bio bio(BIO_new(BIO_s_mem()), BIO_free);
  char *text = nullptr;
  if (!bio || X509_NAME_print_ex(bio.get(), name, 0, XN_FLAG_RFC2253 & ~ASN1_STRFLGS_ESC_MSB) < 0)
    return "?";
  long length = BIO_get_mem_data(bio.get(), &text);
  return {text, static_cast<size_t>(length)};
}

static std::string time_text(const ASN1_TIME *time) {
  tm fields{};
  char text[64] = "?";
  if (ASN1_TIME_to_tm(time, &fields) == 1)
    strftime(text, sizeof text, "%Y-%m-%d %H:%M:%S UTC", &fields);
  return text;
}

static std::string host_text(const GENERAL_NAME *name) {
  int kind;
  auto *text = static_cast<const ASN1_STRING *>(GENERAL_NAME_get0_value(name, &kind));
  if (kind != GEN_DNS && kind != GEN_IPADD)
    return {};
  auto *bytes = ASN1_STRING_get0_data(text);
  auto length = static_cast<size_t>(ASN1_STRING_length(text));
  if (kind == GEN_DNS)
    return {reinterpret_cast<const char *>(bytes), length};
  char address[INET6_ADDRSTRLEN] = "?";
  if (length == 4 || length == 16)
    inet_ntop(length == 4 ? AF_INET : AF_INET6, bytes, address, sizeof address);
  return address;
}

/* At most eight: a certificate may have hundreds of hosts. */
static std::string hosts_text(const X509 *certificate) {
  constexpr int most = 8;
  std::string all;
  auto *names = static_cast<GENERAL_NAMES *>(X509_get_ext_d2i(certificate, NID_subject_alt_name, nullptr, nullptr));
  int n = names ? sk_GENERAL_NAME_num(names) : 0;
  for (int i = 0; i < n && i < most; i++)
    if (std::string host = host_text(sk_GENERAL_NAME_value(names, i)); !host.empty())
      all += (all.empty() ? "" : ", ") + host;
  GENERAL_NAMES_free(names);
  return n > most ? all + ", ..." : all;
}

static std::string key_text(const X509 *certificate) {
  const EVP_PKEY *key = X509_get0_pubkey(certificate);
  const char *kind = key ? OBJ_nid2sn(EVP_PKEY_base_id(key)) : nullptr;
  if (!kind)
    return "?";
  return (EVP_PKEY_base_id(key) == EVP_PKEY_RSA ? "RSA" : kind) + (", " + std::to_string(EVP_PKEY_bits(key))) +
         " bits";
}

static std::optional<CertificateFacts> facts(const X509 *certificate) {
  if (!certificate)
    return std::nullopt;
  const ASN1_TIME *end = X509_get0_notAfter(certificate);
  return CertificateFacts{name_text(X509_get_subject_name(certificate)),
                          name_text(X509_get_issuer_name(certificate)),
                          time_text(end),
                          X509_cmp_current_time(end) < 0,
                          time_text(X509_get0_notBefore(certificate)),
                          hosts_text(certificate),
                          key_text(certificate)};
}

std::optional<CertificateFacts> certificate_facts(const std::string &pem) {
  ErrorsForgotten at_end;
  return facts(next_certificate(reader(pem).get()).get());
}

std::optional<CertificateFacts> certificate_facts(const void *der, size_t size) {
  ErrorsForgotten at_end;
  auto *bytes = static_cast<const unsigned char *>(der);
  Certificate certificate(d2i_X509(nullptr, &bytes, static_cast<long>(size)), X509_free);
  return facts(certificate.get());
}

std::string certificate_problem(int error, const RefusedCertificate &refused) {
  std::string certificate =
      refused.depth == 0 ? refused.whose + " certificate (" : "a certificate in " + refused.whose + " chain (";
  certificate += refused.facts.subject + ") ";
  switch (error) {
  case X509_V_ERR_CERT_HAS_EXPIRED:
    return certificate + "has expired on " + refused.facts.ends;
  case X509_V_ERR_CERT_NOT_YET_VALID:
    return certificate + "is not valid yet: look at the clocks";
  case X509_V_ERR_HOSTNAME_MISMATCH:
  case X509_V_ERR_IP_ADDRESS_MISMATCH:
    return certificate + "is not made out to that host: name " + refused.host_in + " as the certificate does";
  case X509_V_ERR_SELF_SIGNED_CERT_IN_CHAIN:
  case X509_V_ERR_DEPTH_ZERO_SELF_SIGNED_CERT:
  case X509_V_ERR_UNABLE_TO_GET_ISSUER_CERT:
  case X509_V_ERR_UNABLE_TO_GET_ISSUER_CERT_LOCALLY:
  case X509_V_ERR_UNABLE_TO_VERIFY_LEAF_SIGNATURE:
  case X509_V_ERR_CERT_SIGNATURE_FAILURE:
    return certificate + "comes from an authority that is not trusted here (" + refused.facts.issuer +
           "): set option ssl_ca_pem of the server to that authority's certificate";
  default:
    return certificate + "was not accepted: " + X509_verify_cert_error_string(error);
  }
}

}  // namespace outbox
