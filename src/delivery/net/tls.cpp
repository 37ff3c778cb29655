/*
 * tls.cpp: certificates come from options, never from files. The callback does not change OpenSSL's verdict; it notes
 * which certificate is wrong, because OpenSSL's own text names none.
 */
#include "delivery/net/tls.h"

#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>

#include <new>
#include <optional>

#include "delivery/base/out_of_memory.h"

namespace outbox {
namespace {

constexpr const char *step = "TLS";

struct FreeBio {
  void operator()(BIO *bio) const { BIO_free(bio); }
};
struct FreeX509 {
  void operator()(X509 *certificate) const { X509_free(certificate); }
};
struct FreeKey {
  void operator()(EVP_PKEY *key) const { EVP_PKEY_free(key); }
};
using Bio = std::unique_ptr<BIO, FreeBio>;
using Certificate = std::unique_ptr<X509, FreeX509>;

Bio bio_of(const std::string &pem) {
  Bio bio(BIO_new_mem_buf(pem.data(), static_cast<int>(pem.size())));
  if (!bio)
    throw std::bad_alloc();
  return bio;
}

std::string openssl_text() {
  char text[256] = "unknown error";
  if (unsigned long code = ERR_peek_last_error())
    ERR_error_string_n(code, text, sizeof text);
  return text;
}

[[noreturn]] void refused(const char *what) {
  throw PeerError(step, OB_REASON_TLS, std::string("OpenSSL refuses ") + what + ": " + openssl_text());
}

/* Without it OpenSSL would ask on a terminal. */
int no_password(char *, int, int, void *) {
  return 0;
}

void trust(SSL_CTX *context, const std::string &pem) {
  Bio bio = bio_of(pem);
  while (Certificate certificate{PEM_read_bio_X509(bio.get(), nullptr, no_password, nullptr)})
    X509_STORE_add_cert(SSL_CTX_get_cert_store(context), certificate.get());
  ERR_clear_error(); /* the end of the text counts as an error */
}

void identify(SSL_CTX *context, const ConnectOptions &options) {
  Bio bio = bio_of(options.certificate_pem);
  Certificate own(PEM_read_bio_X509(bio.get(), nullptr, no_password, nullptr));
  if (!own || SSL_CTX_use_certificate(context, own.get()) != 1)
    refused("ssl_certificate_pem");
  while (Certificate authority{PEM_read_bio_X509(bio.get(), nullptr, no_password, nullptr)})
    SSL_CTX_add1_chain_cert(context, authority.get());
  ERR_clear_error();
  Bio key_bio = bio_of(options.key_pem);
  std::unique_ptr<EVP_PKEY, FreeKey> key(PEM_read_bio_PrivateKey(key_bio.get(), nullptr, no_password, nullptr));
  if (!key || SSL_CTX_use_PrivateKey(context, key.get()) != 1)
    refused("ssl_key_pem");
}

bool is_address(const std::string &host) {
  ASN1_OCTET_STRING *address = a2i_IPADDRESS(host.c_str());
  ASN1_OCTET_STRING_free(address);
  ERR_clear_error();
  return address != nullptr;
}

void expect_host(SSL *ssl, const std::string &host) {
  X509_VERIFY_PARAM *expected = SSL_get0_param(ssl);
  int done = is_address(host) ? X509_VERIFY_PARAM_set1_ip_asc(expected, host.c_str())
                              : X509_VERIFY_PARAM_set1_host(expected, host.c_str(), host.size());
  if (done != 1)
    throw std::bad_alloc();
}

}  // namespace

Tls::Tls(const ConnectOptions &options, const std::string &host, int fd)
    : context_(SSL_CTX_new(TLS_client_method())), words_(options.words),
      has_certificate_(!options.certificate_pem.empty()) {
  if (!context_)
    throw std::bad_alloc();
  SSL_CTX_set_min_proto_version(context_.get(), TLS1_2_VERSION);
  SSL_CTX_set_mode(context_.get(), SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
  if (options.ca_pem.empty())
    SSL_CTX_set_default_verify_paths(context_.get());
  else
    trust(context_.get(), options.ca_pem);
  if (has_certificate_)
    identify(context_.get(), options);
  ssl_.reset(SSL_new(context_.get()));
  if (!ssl_ || SSL_set_fd(ssl_.get(), fd) != 1)
    throw std::bad_alloc();
  SSL_set_app_data(ssl_.get(), this);
  if (!is_address(host))
    SSL_set_tlsext_host_name(ssl_.get(), host.c_str());
  if (options.verify) {
    expect_host(ssl_.get(), host);
    SSL_set_verify(ssl_.get(), SSL_VERIFY_PEER, on_certificate);
  }
}

int Tls::on_certificate(int ok, X509_STORE_CTX *store) {
  if (ok == 1)
    return 1;
  auto *ssl = static_cast<SSL *>(X509_STORE_CTX_get_ex_data(store, SSL_get_ex_data_X509_STORE_CTX_idx()));
  auto *self = static_cast<Tls *>(SSL_get_app_data(ssl));
  or_out_of_memory([&] {
    std::optional<CertificateFacts> facts;
    unsigned char *der = nullptr;
    if (int size = i2d_X509(X509_STORE_CTX_get_current_cert(store), &der); size > 0)
      facts = certificate_facts(der, static_cast<size_t>(size));
    OPENSSL_free(der);
    self->problem_ = certificate_problem(X509_STORE_CTX_get_error(store),
                                         {self->the_peer() + "'s", X509_STORE_CTX_get_error_depth(store),
                                          facts.value_or(CertificateFacts{"?", "?", "?", false}),
                                          self->the_peer() + " in option hosts"});
  });
  return ok;
}

std::string Tls::right_port() const {
  return std::string("name its TLS port in option hosts, usually ") + words_.tls_port + ", or leave out option tls";
}

/* Some servers take a handshake for the beginning of a command, and wait for the rest. */
PeerError Tls::unanswered(const std::string &peer) const {
  return {step, OB_REASON_TIMEOUT,
          "TLS failed: " + peer + " takes the connection and gives no answer in time to the handshake", right_port()};
}

PeerError Tls::why(int code) const {
  unsigned long error = ERR_peek_last_error();
  int reason = ERR_GET_REASON(error);
  auto failed = [](const std::string &fact, const std::string &hint = {}) {
    return PeerError(step, OB_REASON_TLS, "TLS failed: " + fact, hint);
  };
  if (!problem_.empty() && reason == SSL_R_CERTIFICATE_VERIFY_FAILED)
    return failed(problem_);
  if (reason == SSL_R_WRONG_VERSION_NUMBER || reason == SSL_R_UNEXPECTED_EOF_WHILE_READING ||
      (error == 0 && !SSL_is_init_finished(ssl_.get())))
    return failed(the_peer() + " does not speak TLS on this port, or hung up", right_port());
  if (reason == SSL_R_TLSV1_ALERT_PROTOCOL_VERSION || reason == SSL_R_UNSUPPORTED_PROTOCOL)
    return failed(the_peer() + " speaks no TLS 1.2 or later", "it needs a newer version, or other settings of TLS");
  bool alert = reason >= SSL_AD_REASON_OFFSET;
  if (alert && !has_certificate_)
    return failed(the_peer() + " refused the handshake (" + openssl_text() + ")",
                  "it may want a client certificate: set ssl_certificate_pem and ssl_key_pem in the user mapping");
  if (alert)
    return failed(the_peer() + " does not accept the client's certificate (" + openssl_text() + ")",
                  "look at ssl_certificate_pem in the user mapping, and at the authorities that " + the_peer() +
                      " trusts");
  return failed(code == SSL_ERROR_SYSCALL && error == 0 ? "the connection was lost" : openssl_text());
}

}  // namespace outbox
