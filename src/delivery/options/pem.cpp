/*
 * pem.cpp: OpenSSL parses the text when CREATE USER MAPPING runs, so a broken key is an error there and not a
 * failing sink later. Errors never contain the text. The author of an encrypted key has chosen how long the
 * derivation of its password takes, up to half an hour. So this looks at the key's own parameters before it lets
 * OpenSSL decrypt anything.
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
#include <openssl/pkcs12.h>
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

/* ---- encrypted keys ---- */

static constexpr uint64_t most_iterations = 1'000'000, most_scrypt = uint64_t(1) << 20;

static uint64_t number(const ASN1_INTEGER *from) {
  uint64_t value = 0;
  return from && ASN1_INTEGER_get_uint64(&value, from) == 1 ? value : UINT64_MAX;
}

template <class T> using Asn1 = std::unique_ptr<T, void (*)(T *)>;

static const ASN1_STRING *parameters(const X509_ALGOR *algorithm, int &nid) {
  const ASN1_OBJECT *oid;
  int type;
  const void *value;
  X509_ALGOR_get0(&oid, &type, &value, algorithm);
  nid = OBJ_obj2nid(oid);
  return type == V_ASN1_SEQUENCE ? static_cast<const ASN1_STRING *>(value) : nullptr;
}

template <class T>
static Asn1<T> unpack(const ASN1_STRING *from, T *(*parse)(T **, const unsigned char **, long), void (*free)(T *)) {
  const unsigned char *at = from ? ASN1_STRING_get0_data(from) : nullptr;
  return {at ? parse(nullptr, &at, ASN1_STRING_length(from)) : nullptr, free};
}

[[noreturn]] static void takes_too_long(const std::string &name, const std::string &what, uint64_t most) {
  refuse_value(name,
               "Its password is derived with " + what + ", and at most " + std::to_string(most) + " are allowed.",
               "Encrypt the key again: openssl pkcs8 -topk8 -iter 100000 -in old.pem -out new.pem");
}

static void check_iterations(const std::string &name, const ASN1_INTEGER *from) {
  if (uint64_t n = number(from); n > most_iterations)
    takes_too_long(name, n == UINT64_MAX ? "too many iterations" : std::to_string(n) + " iterations",
                   most_iterations);
}

/* Returns false for an algorithm that is not known here; throws BadInput if it takes too long. */
static bool check_derivation(const std::string &name, const X509_ALGOR *algorithm) {
  int nid;
  const ASN1_STRING *given = parameters(algorithm, nid);
  if (nid != NID_pbes2) { /* PKCS#5 v1.5 and PKCS#12 */
    auto old = unpack(given, d2i_PBEPARAM, PBEPARAM_free);
    if (old)
      check_iterations(name, old->iter);
    return old != nullptr;
  }
  auto pbes2 = unpack(given, d2i_PBE2PARAM, PBE2PARAM_free);
  if (!pbes2)
    return false;
  given = parameters(pbes2->keyfunc, nid);
  if (nid == NID_id_pbkdf2) {
    auto pbkdf2 = unpack(given, d2i_PBKDF2PARAM, PBKDF2PARAM_free);
    if (pbkdf2)
      check_iterations(name, pbkdf2->iter);
    return pbkdf2 != nullptr;
  }
  if (nid != NID_id_scrypt)
    return false;
  auto scrypt = unpack(given, d2i_SCRYPT_PARAMS, SCRYPT_PARAMS_free);
  if (!scrypt)
    return false;
  uint64_t left = most_scrypt;
  for (uint64_t factor :
       {number(scrypt->costParameter), number(scrypt->blockSize), number(scrypt->parallelizationParameter)}) {
    if (factor > left)
      takes_too_long(name, "scrypt and too large a product of N, r and p", most_scrypt);
    left /= std::max<uint64_t>(factor, 1);
  }
  return true;
}

/* ---- reading a key ---- */

/* One block of a PEM text: its name, header and bytes, not decrypted. */
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

  /* Decrypts a block of the old kind ("DEK-Info"), whose password is derived in one step. */
  bool decrypt(Password &password) {
    EVP_CIPHER_INFO cipher;
    return PEM_get_EVP_CIPHER_INFO(header_, &cipher) == 1 &&
           PEM_do_header(&cipher, bytes_, &size_, give_password, &password) == 1;
  }

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

static Key read_encrypted(const std::string &name, const Block &block, Password &password) {
  const unsigned char *at = block.bytes();
  std::unique_ptr<X509_SIG, decltype(&X509_SIG_free)> encrypted(d2i_X509_SIG(nullptr, &at, block.size()),
                                                                X509_SIG_free);
  const X509_ALGOR *algorithm = nullptr;
  if (encrypted)
    X509_SIG_get0(encrypted.get(), &algorithm, nullptr);
  char text[PEM_BUFSIZE];
  int length = algorithm && check_derivation(name, algorithm) ? give_password(text, sizeof text, 0, &password) : -1;
  Pkcs8 key(length >= 0 ? PKCS8_decrypt(encrypted.get(), text, length) : nullptr, PKCS8_PRIV_KEY_INFO_free);
  OPENSSL_cleanse(text, sizeof text);
  return key_of(key);
}

/* The first private key of the text; null if there is none, or it cannot be read. */
static Key read_key(const std::string &name, const std::string &text, Password &password) {
  Bio bio = reader(text);
  for (Block block; block.read(bio.get());) {
    if (block.name() == PEM_STRING_PKCS8)
      return read_encrypted(name, block, password);
    const int type = block.name() == PEM_STRING_RSA            ? EVP_PKEY_RSA
                     : block.name() == PEM_STRING_ECPRIVATEKEY ? EVP_PKEY_EC
                     : block.name() == PEM_STRING_DSA          ? EVP_PKEY_DSA
                                                               : EVP_PKEY_NONE;
    if (type == EVP_PKEY_NONE && block.name() != PEM_STRING_PKCS8INF)
      continue;
    if (block.has_header() && !block.decrypt(password))
      break;
    const unsigned char *at = block.bytes();
    if (type != EVP_PKEY_NONE)
      return {d2i_PrivateKey(type, nullptr, &at, block.size()), EVP_PKEY_free};
    return key_of({d2i_PKCS8_PRIV_KEY_INFO(nullptr, &at, block.size()), PKCS8_PRIV_KEY_INFO_free});
  }
  return {nullptr, EVP_PKEY_free};
}

void check_key_pem(const std::string &name, const std::string &value) {
  ErrorsForgotten at_end;
  Password none{nullptr};
  if (!read_key(name, value, none) && !none.asked)
    refuse_value(name, "Expected a private key in PEM, beginning with -----BEGIN PRIVATE KEY----- or the like.");
}

static std::string unencrypted(EVP_PKEY *key) {
  Bio bio(BIO_new(BIO_s_secmem()), BIO_free);
  char *text = nullptr;
  if (!bio || PEM_write_bio_PKCS8PrivateKey(bio.get(), key, nullptr, nullptr, 0, nullptr, nullptr) != 1)
    throw std::bad_alloc();
  long length = BIO_get_mem_data(bio.get(), &text);
  return {text, static_cast<size_t>(length)};
}

std::string open_key(const KeyPair &pair) {
  ErrorsForgotten at_end;
  Password password{pair.password};
  Key key = read_key(SSL_KEY_PEM, pair.key, password);
  if (!key && password.asked && !pair.password)
    throw BadInput(OB_MISSING_OPTION, SSL_KEY_PASSWORD, "option \"ssl_key_password\" is required",
                   "The key in option \"ssl_key_pem\" is encrypted.");
  if (!key && password.asked)
    refuse_value(SSL_KEY_PASSWORD, "It does not open the key in option \"ssl_key_pem\".");
  if (!key)
    refuse_value(SSL_KEY_PEM, "Expected a private key in PEM.");
  std::string opened = password.asked ? unencrypted(key.get()) : pair.key;
  if (!pair.certificate)
    return opened;
  Certificate certificate = next_certificate(reader(*pair.certificate).get());
  if (!certificate)
    refuse_value(SSL_CERTIFICATE_PEM, "Expected a certificate in PEM.");
  if (X509_check_private_key(certificate.get(), key.get()) != 1)
    refuse_value(SSL_KEY_PEM, "It is not the key of the certificate in option \"ssl_certificate_pem\".",
                 "The client's own certificate comes first in \"ssl_certificate_pem\", before those of its "
                 "authorities.");
  return opened;
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
