/*
 * pem.cpp: OpenSSL parses the text when CREATE USER MAPPING runs, so a broken key is an error there and not a
 * failing sink later. Errors never contain the text.
 */
#include "delivery/options/pem.h"

#include <ctime>
#include <memory>

#include <arpa/inet.h>
#include <openssl/err.h>
#include <openssl/pem.h>
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

/* OpenSSL calls this for the password of an encrypted key; without it, OpenSSL would ask at the terminal. */
struct Password {
  const std::string *text;
  bool asked = false;
};
static int give_password(char *buffer, int size, int, void *password_) {
  auto *password = static_cast<Password *>(password_);
  password->asked = true;
  if (!password->text || password->text->size() > static_cast<size_t>(size))
    return -1;
  password->text->copy(buffer, password->text->size());
  return static_cast<int>(password->text->size());
}

static Key read_key(const std::string &text, Password &password) {
  Bio bio = reader(text);
  return {PEM_read_bio_PrivateKey(bio.get(), nullptr, give_password, &password), EVP_PKEY_free};
}

void check_key_pem(const std::string &name, const std::string &value) {
  ErrorsForgotten at_end;
  Password none{nullptr};
  if (!read_key(value, none) && !none.asked)
    refuse_value(name, "Expected a private key in PEM, beginning with -----BEGIN PRIVATE KEY----- or the like.");
}

void check_key_pair(const KeyPair &pair) {
  ErrorsForgotten at_end;
  Password password{pair.password};
  Key key = read_key(pair.key, password);
  if (!key && password.asked && !pair.password)
    throw BadInput(OB_MISSING_OPTION, pair.password_name, "option \"" + pair.password_name + "\" is required",
                   "The key in option \"" + pair.key_name + "\" is encrypted.");
  if (!key && password.asked)
    refuse_value(pair.password_name, "It does not open the key in option \"" + pair.key_name + "\".");
  if (!key)
    refuse_value(pair.key_name, "Expected a private key in PEM.");
  Certificate certificate = next_certificate(reader(pair.certificate).get());
  if (!certificate)
    refuse_value(pair.certificate_name, "Expected a certificate in PEM.");
  if (X509_check_private_key(certificate.get(), key.get()) != 1)
    refuse_value(pair.key_name, "It is not the key of the certificate in option \"" + pair.certificate_name + "\".",
                 "The client's own certificate comes first in \"" + pair.certificate_name +
                     "\", before those of its authorities.");
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

}  // namespace outbox
