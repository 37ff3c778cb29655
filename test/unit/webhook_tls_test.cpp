/* A webhook over TLS, to a peer with a certificate made here. */
#include "authority.h"
#include "webhook_fixture.h"

using namespace outbox;
using Peer = FaultServer::Peer;

namespace {

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
