/*
 * tls_diagnosis.cpp: OpenSSL's callbacks see the certificate and the peer's alert, which libcurl's error text
 * leaves out. The callbacks are attached to the connection's SSL_CTX and not to the easy handle, otherwise handles
 * could not share connections. A resumed TLS session sends no certificate and does not call the verify callback, so
 * the certificate is then read from the session after the handshake.
 */
#include "delivery/http/tls_diagnosis.h"

#include <ctime>
#include <cstring>
#include <new>

#include <openssl/crypto.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>

#include "delivery/base/out_of_memory.h"
#include "delivery/options/pem.h"

namespace outbox {

struct FreeCertificate {
  void operator()(X509 *certificate) const { X509_free(certificate); }
};
using Certificate = std::unique_ptr<X509, FreeCertificate>;

struct TlsDiagnosis::Handshake {
  bool asked = false; /* the peer asked for a client certificate */
  Certificate leaf;   /* the endpoint's certificate */
  Certificate bad; /* the first certificate that was not accepted; its error; its distance from the endpoint's own */
  int error = X509_V_OK, depth = 0;
  int alert = -1; /* the peer's fatal alert: SSL3_AD_..., TLS1_AD_..., TLS13_AD_... */
};

/* ---- looking on ---- */

using Shared = std::shared_ptr<TlsDiagnosis::Handshake>;

static void free_shared(void *, void *shared, CRYPTO_EX_DATA *, int, long, void *) {
  delete static_cast<Shared *>(shared);
}

/* The index of our pointer in an SSL_CTX, which lives as long as its connection. */
static int context_index() {
  static const int index = SSL_CTX_get_ex_new_index(0, nullptr, nullptr, nullptr, free_shared);
  return index;
}

static Certificate another(X509 *certificate) {
  X509_up_ref(certificate);
  return Certificate(certificate);
}

/* OpenSSL's verify callback: called for each certificate of the chain, and before that for each error. Returns
 * OpenSSL's verdict unchanged. */
static int on_certificate(int good, X509_STORE_CTX *store) {
  auto *ssl = static_cast<SSL *>(X509_STORE_CTX_get_ex_data(store, SSL_get_ex_data_X509_STORE_CTX_idx()));
  auto *shared = ssl ? static_cast<Shared *>(SSL_CTX_get_ex_data(SSL_get_SSL_CTX(ssl), context_index())) : nullptr;
  X509 *certificate = X509_STORE_CTX_get_current_cert(store);
  if (!shared)
    return good;
  TlsDiagnosis::Handshake &seen = **shared;
  if (X509 *own = X509_STORE_CTX_get0_cert(store); own && !seen.leaf)
    seen.leaf = another(own);
  if (!good && seen.error == X509_V_OK) {
    seen.error = X509_STORE_CTX_get_error(store);
    seen.depth = X509_STORE_CTX_get_error_depth(store);
    if (certificate)
      seen.bad = another(certificate);
  }
  return good;
}

static void on_event(const SSL *ssl, int where, int value) {
  auto *shared = static_cast<Shared *>(SSL_CTX_get_ex_data(SSL_get_SSL_CTX(ssl), context_index()));
  if (!shared)
    return;
  TlsDiagnosis::Handshake &seen = **shared;
  bool fatal = value >> 8 == SSL3_AL_FATAL;
  if (where == SSL_CB_READ_ALERT && fatal && seen.alert < 0)
    seen.alert = value & 0xff;
  /* a resumed session sends no certificate, but contains it */
  if (where == SSL_CB_HANDSHAKE_DONE && !seen.leaf)
    seen.leaf.reset(SSL_get1_peer_certificate(ssl));
}

/* The peer asks for a client certificate. libcurl has already set it, if there is one. */
static int on_request(SSL *, void *shared) {
  (*static_cast<Shared *>(shared))->asked = true;
  return 1;
}

CURLcode TlsDiagnosis::on_context(CURL *easy, void *context_, void *) {
  auto *context = static_cast<SSL_CTX *>(context_);
  char *self_ = nullptr;
  curl_easy_getinfo(easy, CURLINFO_PRIVATE, &self_);
  auto *self = reinterpret_cast<TlsDiagnosis *>(self_);
  or_out_of_memory([&] {
    auto shared = std::make_unique<Shared>(std::make_shared<Handshake>());
    if (!self || SSL_CTX_set_ex_data(context, context_index(), shared.get()) != 1)
      return;
    SSL_CTX_set_verify(context, SSL_CTX_get_verify_mode(context), on_certificate);
    SSL_CTX_set_cert_cb(context, on_request, shared.get());
    SSL_CTX_set_info_callback(context, on_event);
    self->handshake_ = *shared;
    (void)shared.release(); /* owned by the context now */
  });
  return CURLE_OK;
}

/* Whether libcurl uses the same OpenSSL as this library, so that its SSL_CTX can be used here. */
static bool libcurl_uses_our_openssl() {
  std::string ours = std::string("OpenSSL/") + OpenSSL_version(OPENSSL_VERSION_STRING);
  const char *its = curl_version_info(CURLVERSION_NOW)->ssl_version;
  return its && strncmp(its, ours.c_str(), ours.size()) == 0;
}

void TlsDiagnosis::attach(CURL *easy) {
  static const bool ours = libcurl_uses_our_openssl();
  /* The callback finds this object by the handle: with CURLOPT_SSL_CTX_DATA, libcurl would not share connections
   * between handles. */
  if (ours && curl_easy_setopt(easy, CURLOPT_PRIVATE, this) == CURLE_OK)
    curl_easy_setopt(easy, CURLOPT_SSL_CTX_FUNCTION, &TlsDiagnosis::on_context);
}

bool TlsDiagnosis::asked_for_client_certificate() const {
  return handshake_ && handshake_->asked;
}

/* ---- the endpoint's certificate ---- */

static CertificateFacts facts_of(X509 *certificate) {
  unsigned char *der = nullptr;
  int size = certificate ? i2d_X509(certificate, &der) : 0;
  auto facts = size > 0 ? certificate_facts(der, static_cast<size_t>(size)) : std::nullopt;
  OPENSSL_free(der);
  return facts.value_or(CertificateFacts{"?", "?", "?", false, "?", "?", "?"});
}

static std::string now_text() {
  char text[64];
  time_t now = time(nullptr);
  tm fields{};
  gmtime_r(&now, &fields);
  strftime(text, sizeof text, "%Y-%m-%d %H:%M:%S UTC", &fields);
  return text;
}

static TlsProblem certificate_problem(int error, int depth, const CertificateFacts &facts) {
  constexpr const char *renew = "The operator of the endpoint must renew it.";
  std::string whose = (depth == 0 ? "the endpoint's certificate (" : "a certificate in the endpoint's chain (") +
                      facts.subject + ") ";
  switch (error) {
  case X509_V_ERR_CERT_HAS_EXPIRED:
    return {whose + "has expired on " + facts.ends, renew};
  case X509_V_ERR_CERT_NOT_YET_VALID:
    return {whose + "is not valid before " + facts.begins,
            "Check the clocks: the time here is " + now_text() +
                ". If that is correct, the certificate cannot be used yet."};
  case X509_V_ERR_DEPTH_ZERO_SELF_SIGNED_CERT:
    return {whose + "is self-signed, and not trusted here",
            "If it is the right one, set option ssl_ca_pem of the server to that very certificate."};
  case X509_V_ERR_SELF_SIGNED_CERT_IN_CHAIN:
  case X509_V_ERR_CERT_SIGNATURE_FAILURE:
    return {"the endpoint's certificate comes from an authority that is not trusted here (" + facts.issuer + ")",
            "If it is the right one, set option ssl_ca_pem of the server to that authority's certificate."};
  case X509_V_ERR_UNABLE_TO_GET_ISSUER_CERT:
  case X509_V_ERR_UNABLE_TO_GET_ISSUER_CERT_LOCALLY:
  case X509_V_ERR_UNABLE_TO_VERIFY_LEAF_SIGNATURE:
    return {
        whose + "comes from an authority that is not known here (" + facts.issuer + ")",
        "Set option ssl_ca_pem of the server to that authority's certificate; or, if it is an intermediate one, the "
        "endpoint must send its certificate as well."};
  case X509_V_ERR_CERT_REVOKED:
    return {whose + "has been revoked", renew};
  case X509_V_ERR_INVALID_PURPOSE:
    return {whose + "is not made for servers", renew};
  case X509_V_ERR_EE_KEY_TOO_SMALL:
  case X509_V_ERR_CA_KEY_TOO_SMALL:
    return {whose + "has a key that is too weak (" + facts.key + ")", renew};
  case X509_V_ERR_CA_MD_TOO_WEAK:
    return {whose + "is signed with a digest that is too weak", renew};
  default:
    return {whose + "was not accepted: " + X509_verify_cert_error_string(error), renew};
  }
}

static bool has(std::string_view text, std::string_view part) {
  return text.find(part) != text.npos;
}

/* The host in libcurl's text "... does not match target host name 'crm.example'". */
static std::string quoted_last(std::string_view text) {
  size_t end = text.rfind('\''), begin = end == text.npos || end == 0 ? text.npos : text.rfind('\'', end - 1);
  return begin == text.npos ? "?" : std::string(text.substr(begin + 1, end - begin - 1));
}

TlsProblem TlsDiagnosis::why_certificate(std::string_view text) const {
  if (handshake_ && handshake_->error != X509_V_OK)
    return certificate_problem(handshake_->error, handshake_->depth, facts_of(handshake_->bad.get()));
  if (handshake_ && handshake_->leaf && has(text, "match")) { /* libcurl compares the name after the handshake */
    CertificateFacts facts = facts_of(handshake_->leaf.get());
    return {"the endpoint's certificate is made out to " + (facts.hosts.empty() ? facts.subject : facts.hosts) +
                ", and not to " + quoted_last(text),
            "Correct the url, or ask the operator of the endpoint for a certificate with that name too."};
  }
  return {"the endpoint's certificate was not accepted", "Look at option ssl_ca_pem of the server."};
}

/* ---- the rest ---- */

static TlsProblem client_certificate_problem(int alert, bool has_one) {
  if (!has_one)
    return {"the endpoint wants a client certificate",
            "Set ssl_certificate_pem and ssl_key_pem in PUBLIC's user mapping."};
  return {"the endpoint does not accept the client certificate" +
              std::string(alert == SSL3_AD_CERTIFICATE_EXPIRED   ? ", because it has expired"
                          : alert == SSL3_AD_CERTIFICATE_REVOKED ? ", because it is revoked"
                          : alert == TLS1_AD_UNKNOWN_CA          ? ", whose authority it does not know"
                                                                 : ""),
          "Look at ssl_certificate_pem in PUBLIC's user mapping: is it, or its authority, known to the endpoint?"};
}

/* A TLS 1.2 server sends handshake_failure to a client without a certificate. */
static bool is_about_client_certificate(const TlsDiagnosis::Handshake &seen) {
  switch (seen.alert) {
  case SSL3_AD_HANDSHAKE_FAILURE:
  case TLS1_AD_ACCESS_DENIED:
    return seen.asked;
  case SSL3_AD_BAD_CERTIFICATE:
  case SSL3_AD_UNSUPPORTED_CERTIFICATE:
  case SSL3_AD_CERTIFICATE_REVOKED:
  case SSL3_AD_CERTIFICATE_EXPIRED:
  case SSL3_AD_CERTIFICATE_UNKNOWN:
  case TLS1_AD_UNKNOWN_CA:
  case TLS13_AD_CERTIFICATE_REQUIRED:
    return true;
  default:
    return false;
  }
}

constexpr const char *newer = "The operator of the endpoint must update its TLS: version 1.2 or later is required.";

static std::optional<TlsProblem> alert_problem(int alert) {
  switch (alert) {
  case TLS1_AD_PROTOCOL_VERSION:
    return TlsProblem{"the endpoint speaks no TLS 1.2 or later", newer};
  case SSL3_AD_HANDSHAKE_FAILURE:
  case TLS1_AD_INSUFFICIENT_SECURITY:
    return TlsProblem{"endpoint and sink have no cipher in common", newer};
  case TLS1_AD_UNRECOGNIZED_NAME:
    return TlsProblem{"the endpoint does not know the host that the url names", "Correct the url."};
  default:
    return std::nullopt;
  }
}

/* Problems that only OpenSSL's error text tells. */
static std::optional<TlsProblem> text_problem(std::string_view text) {
  if (has(text, "wrong version number") || has(text, "packet length too long") || has(text, "http request") ||
      has(text, "record layer failure"))
    return TlsProblem{"the endpoint does not speak TLS on this port",
                      "Correct the port in the url; a plain http endpoint needs an http url, and option allow_http."};
  if (has(text, "unsupported protocol") || has(text, "no protocols available"))
    return TlsProblem{"the endpoint speaks no TLS 1.2 or later", newer};
  if (has(text, "key too small") || has(text, "bad dh") || has(text, "md too weak"))
    return TlsProblem{"the endpoint's keys are too weak", newer};
  if (has(text, "unexpected eof") || has(text, "SSL_ERROR_SYSCALL") || has(text, "reset by peer"))
    return TlsProblem{"the endpoint closed the connection during the handshake",
                      "Does this port speak TLS? See the url, and the endpoint's log."};
  return std::nullopt;
}

static bool is_of_tls(CURLcode code) {
  return code == CURLE_SSL_CONNECT_ERROR || code == CURLE_PEER_FAILED_VERIFICATION || code == CURLE_SSL_CERTPROBLEM ||
         code == CURLE_SSL_CIPHER || code == CURLE_SSL_ISSUER_ERROR || code == CURLE_SSL_INVALIDCERTSTATUS ||
         code == CURLE_SSL_CACERT_BADFILE || code == CURLE_SSL_CLIENTCERT;
}

bool TlsDiagnosis::refused_by_alert() const {
  return handshake_ && is_about_client_certificate(*handshake_);
}

std::optional<TlsProblem> TlsDiagnosis::explain(CURLcode code, std::string_view text, bool has_client_certificate,
                                                bool hung_up) const {
  if (code == CURLE_PEER_FAILED_VERIFICATION)
    return why_certificate(text);
  /* In TLS 1.3 the server refuses or misses a client certificate after the client's side of the handshake is
   * complete, so this shows as a lost connection. The alert tells it from a connection that an endpoint with an
   * optional client certificate closes because of the request, but a reset of the connection may overtake it. */
  bool late = code == CURLE_RECV_ERROR || code == CURLE_SEND_ERROR || code == CURLE_GOT_NOTHING;
  bool of_handshake = is_of_tls(code);
  if (handshake_ && (hung_up || ((late || of_handshake) && refused_by_alert())))
    return client_certificate_problem(handshake_->alert, has_client_certificate);
  if (!of_handshake)
    return std::nullopt;
  if (auto problem = handshake_ ? alert_problem(handshake_->alert) : std::nullopt)
    return problem;
  if (auto problem = text_problem(text))
    return problem;
  if (code == CURLE_SSL_CACERT_BADFILE)
    return TlsProblem{"the certificates of the authorities cannot be read",
                      "Look at option ssl_ca_pem of the server, or install the system's (package ca-certificates)."};
  if (code == CURLE_SSL_CERTPROBLEM)
    return TlsProblem{"the client certificate or its key cannot be used",
                      "Look at ssl_certificate_pem and ssl_key_pem in PUBLIC's user mapping."};
  return TlsProblem{"the handshake with the endpoint failed", "See the endpoint's log."};
}

std::optional<TlsProblem> TlsDiagnosis::explain_silence(std::string_view text) const {
  if (!handshake_ && !has(text, "SSL connection timeout"))
    return std::nullopt;
  return TlsProblem{"the endpoint takes the connection and does not answer the handshake",
                    "Is it running, and is this its TLS port? A plain http endpoint needs an http url, and option "
                    "allow_http."};
}

}  // namespace outbox
