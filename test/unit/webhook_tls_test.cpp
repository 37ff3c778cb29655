/* A webhook over TLS to a peer whose certificate is made here. */
#include "authority.h"
#include "door.h"
#include "patience.h"
#include "webhook_fixture.h"

using namespace outbox;
using Peer = FaultServer::Peer;

namespace {

Options over_tls(const FaultServer &peer, const std::string &ca_pem) {
  Options options = {{"url", peer.url()}, {"allow_networks", "127.0.0.0/8"}};
  if (!ca_pem.empty())
    options["ssl_ca_pem"] = ca_pem;
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
    EXPECT_EQ(completion.outcome, Outcome::Sent) << completion.error;
  }
  EXPECT_EQ(peer.connections(), 1);
}

TEST(WebhookTls, AnUnknownAuthorityOrAnotherNameIsTheSinksFault) {
  Authority authority("127.0.0.1"), other("127.0.0.1"), misnamed("127.0.0.2");
  FaultServer peer(ok, authority.context), wrong(ok, misnamed.context);
  for (Options options : {over_tls(peer, ""), over_tls(peer, other.pem()), over_tls(wrong, misnamed.pem())}) {
    Completion completion = WebhookHarness(options).send(TestEvent(1, 1));
    EXPECT_EQ(completion.outcome, Outcome::SinkDown);
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
  EXPECT_EQ(completion.outcome, Outcome::SinkDown) << completion.error;
}

namespace {

Options client(const Authority &own) {
  return {{"ssl_certificate_pem", own.pem()}, {"ssl_key_pem", own.key_pem()}};
}

/* The public key of the certificate that the peer was shown. */
std::string shown(const Peer &to) {
  X509 *certificate = SSL_get1_peer_certificate(to.ssl);
  std::string key =
      certificate ? Authority::written([&](BIO *bio) { PEM_write_bio_PUBKEY(bio, X509_get0_pubkey(certificate)); })
                  : std::string();
  X509_free(certificate);
  return key;
}
std::string public_key(const Authority &own) {
  return Authority::written([&](BIO *bio) { PEM_write_bio_PUBKEY(bio, own.key); });
}

}  // namespace

TEST(WebhookTls, ShowsItsOwnCertificateAndSharesNoConnectionWithAnothers) {
  Authority authority("127.0.0.1"), one("127.0.0.1"), other("127.0.0.1");
  SSL_CTX_set_verify(authority.context, SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT,
                     [](int, X509_STORE_CTX *) { return 1; });
  SSL_CTX_set_session_id_context(authority.context, reinterpret_cast<const unsigned char *>("x"), 1);
  Shared<std::string> seen;
  FaultServer peer(
      [&](const HttpRequest &, Peer &to) {
        seen.set(shown(to));
        return to.answer(200);
      },
      authority.context);
  Options server = over_tls(peer, authority.pem());
  WebhookHarness first(server, client(one)), second(server, client(other)), nobody(server);
  for (int round = 0; round < 3; round++) {
    EXPECT_EQ(first.send(TestEvent(1, 1)).outcome, Outcome::Sent);
    EXPECT_EQ(seen.get(), public_key(one));
    EXPECT_EQ(second.send(TestEvent(1, 1)).outcome, Outcome::Sent);
    EXPECT_EQ(seen.get(), public_key(other));
    EXPECT_NE(nobody.send(TestEvent(1, 1)).outcome, Outcome::Sent)
        << "on a connection that another's certificate opened";
  }
  EXPECT_EQ(peer.requests(), 6);
}
