/* A webhook over TLS, to a peer with a certificate made here. */
#include "webhook_fixture.h"

#include <openssl/ec.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>

using namespace outbox;
using Peer = FaultServer::Peer;

namespace {

/* A self-signed certificate for an address, and a server context that shows it. */
struct Authority {
  explicit Authority(const char *address) : key(EVP_EC_gen("P-256")), certificate(X509_new()) {
    X509_set_version(certificate, X509_VERSION_3);
    ASN1_INTEGER_set(X509_get_serialNumber(certificate), 1);
    X509_gmtime_adj(X509_getm_notBefore(certificate), -3600);
    X509_gmtime_adj(X509_getm_notAfter(certificate), 3600);
    X509_NAME *name = X509_get_subject_name(certificate);
    X509_NAME_add_entry_by_txt(name, "CN", MBSTRING_ASC, reinterpret_cast<const unsigned char *>("peer"), -1, -1, 0);
    X509_set_issuer_name(certificate, name);
    std::string subject = std::string("IP:") + address;
    X509_EXTENSION *extension = X509V3_EXT_conf_nid(nullptr, nullptr, NID_subject_alt_name, subject.c_str());
    X509_add_ext(certificate, extension, -1);
    X509_EXTENSION_free(extension);
    X509_set_pubkey(certificate, key);
    EXPECT_GT(X509_sign(certificate, key, EVP_sha256()), 0);
    context = SSL_CTX_new(TLS_server_method());
    EXPECT_EQ(SSL_CTX_use_certificate(context, certificate), 1);
    EXPECT_EQ(SSL_CTX_use_PrivateKey(context, key), 1);
  }
  ~Authority() {
    SSL_CTX_free(context);
    X509_free(certificate);
    EVP_PKEY_free(key);
  }
  std::string pem() const {
    BIO *bio = BIO_new(BIO_s_mem());
    PEM_write_bio_X509(bio, certificate);
    char *data;
    long size = BIO_get_mem_data(bio, &data);
    std::string text(data, static_cast<size_t>(size));
    BIO_free(bio);
    return text;
  }
  EVP_PKEY *key;
  X509 *certificate;
  SSL_CTX *context;
};

Options over_tls(const FaultServer &peer, const std::string &ca_pem) {
  Options options = {{"url", peer.url()}, {"allow_networks", "127.0.0.0/8"}};
  if (!ca_pem.empty())
    options["ca_pem"] = ca_pem;
  return options;
}

bool ok(const HttpRequest &, Peer &to) {
  return to.answer(200);
}

}  // namespace

TEST(WebhookTls, TrustsTheGivenAuthorityOverOneConnection) {
  Authority authority("127.0.0.1");
  FaultServer peer(ok, authority.context);
  WebhookHarness crm(over_tls(peer, authority.pem()));
  for (uint64_t n = 1; n <= 5; ++n) {
    Completion completion = crm.send(TestEvent(n, 1));
    EXPECT_EQ(completion.result, Result::Sent) << completion.error;
  }
  EXPECT_EQ(peer.connections(), 1);
}

TEST(WebhookTls, AnUnknownAuthorityOrAnotherNameIsTheSinksFault) {
  Authority authority("127.0.0.1"), other("127.0.0.1"), misnamed("127.0.0.2");
  FaultServer peer(ok, authority.context), wrong(ok, misnamed.context);
  for (Options options : {over_tls(peer, ""), over_tls(peer, other.pem()), over_tls(wrong, misnamed.pem())}) {
    Completion completion = WebhookHarness(options).send(TestEvent(1, 1));
    EXPECT_EQ(completion.result, Result::SinkDown);
    EXPECT_NE(completion.error.find("SSL"), std::string::npos) << completion.error;
  }
  EXPECT_EQ(peer.requests() + wrong.requests(), 0);
}

TEST(WebhookTls, APlainPeerIsTheSinksFault) {
  FaultServer peer(ok);
  Completion completion = WebhookHarness(Options{{"url", "https://127.0.0.1:" + std::to_string(peer.port()) + "/"},
                                                 {"allow_networks", "127.0.0.0/8"},
                                                 {"timeout", "300ms"}})
                              .send(TestEvent(1, 1));
  EXPECT_EQ(completion.result, Result::SinkDown) << completion.error;
}
