/* Webhooks with access tokens of a token endpoint, against a peer with real sockets. */
#include <atomic>

#include "sinks/webhook/webhook_config.h"
#include "bad_input.h"
#include "webhook_fixture.h"
#include "patience.h"

using namespace outbox;

namespace {

/* A token endpoint at /token and a webhook endpoint at /hook. */
struct TokenPeer {
  std::atomic<int> granted{0}, posted{0};
  std::atomic<bool> grants{true};
  std::atomic<int> accepts{0}; /* the number of the token that is accepted; 0 = each */
  Shared<std::string> authorization, form;
  FaultServer server{[this](const HttpRequest &request, FaultServer::Peer &to) {
    if (request.line.starts_with("POST /token ")) {
      form.set(request.body);
      if (!grants)
        return to.answer(400, {}, "{\"error\": \"invalid_client\"}");
      return to.answer(200, {},
                       "{\"access_token\": \"token-" + std::to_string(++granted) + "\", \"expires_in\": 3600}");
    }
    ++posted;
    authorization.set(request.headers.count("authorization") ? request.headers.at("authorization") : "");
    bool right = accepts == 0 || request.headers.at("authorization") == "Bearer token-" + std::to_string(accepts);
    return right ? to.answer(204) : to.answer(401, {}, "no: " + request.headers.at("authorization"));
  }};

  Options options(Options more = {}) {
    more.insert({{"oauth_token_url", server.url("/token")},
                 {"oauth_client_id", "outbox"},
                 {"oauth_parameters", R"({"scope": "hooks"})"}});
    return WebhookHarness::local(server, std::move(more));
  }
};

const Options secret{{"oauth_client_secret", "hush-hush-hush"}};

std::string refusal(const Options &server, const Options *mapping) {
  return bad_input_of([&] { return SinkKind::find("webhook")->parse(server, mapping); }).what();
}

}  // namespace

TEST(WebhookOauth, EachRequestCarriesTheToken) {
  TokenPeer peer;
  WebhookHarness sink(peer.options(), secret);
  EXPECT_EQ(sink.send(TestEvent(1)).outcome, Outcome::Sent);
  EXPECT_EQ(peer.authorization.get(), "Bearer token-1");
  EXPECT_EQ(peer.form.get(), "grant_type=client_credentials&scope=hooks");
  EXPECT_EQ(sink.send(TestEvent(2)).outcome, Outcome::Sent);
  EXPECT_EQ(peer.granted, 1);
}

TEST(WebhookOauth, A401CountsOnlyIfItComesAgainWithAnotherToken) {
  TokenPeer peer;
  WebhookHarness sink(peer.options(), secret);
  EXPECT_EQ(sink.send(TestEvent(1)).outcome, Outcome::Sent);
  peer.accepts = 2;
  Completion first = sink.send(TestEvent(2));
  EXPECT_EQ(first.outcome, Outcome::Returned) << first.error;
  EXPECT_EQ(sink.send(TestEvent(2)).outcome, Outcome::Sent);
  EXPECT_EQ(peer.authorization.get(), "Bearer token-2");

  peer.accepts = 99;
  EXPECT_EQ(sink.send(TestEvent(3)).outcome, Outcome::Returned);
  Completion second = sink.send(TestEvent(3));
  EXPECT_EQ(second.outcome, Outcome::Refused) << second.error;
  EXPECT_NE(second.error.find("401"), std::string::npos) << second.error;
  EXPECT_EQ(second.error.find("token-3"), std::string::npos) << "the endpoint repeats the token: " << second.error;
  EXPECT_EQ(peer.granted, 3);
}

TEST(WebhookOauth, WithoutATokenTheSinkIsDownAndSendsNothing) {
  TokenPeer peer;
  peer.grants = false;
  WebhookHarness sink(peer.options(), secret);
  Completion end = sink.send(TestEvent(1));
  EXPECT_EQ(end.outcome, Outcome::SinkDown);
  EXPECT_EQ(end.reason, OB_REASON_AUTH);
  EXPECT_NE(end.error.find("no token from the token endpoint " + peer.server.url("/token") +
                           " for client \"outbox\": HTTP 400 invalid_client: look at oauth_client_id"),
            std::string::npos)
      << end.error;
  EXPECT_EQ(peer.posted, 0);
  peer.grants = true;
  auto limit = patience_ends(std::chrono::seconds(20));
  while (peer.granted == 0 && std::chrono::steady_clock::now() < limit)
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  Completion next;
  do
    next = sink.send(TestEvent(1));
  while (next.outcome == Outcome::SinkDown && std::chrono::steady_clock::now() < limit);
  EXPECT_EQ(next.outcome, Outcome::Sent) << next.error;
}

TEST(WebhookOauth, TheNetworkGuardHoldsForTheTokenEndpoint) {
  TokenPeer peer;
  FaultServer inner([](const HttpRequest &, FaultServer::Peer &to) { return to.answer(200); });
  Options options = peer.options({{"oauth_token_url", inner.url("/token")}});
  options["allow_networks"] = "10.0.0.0/8";
  WebhookHarness sink(options, secret);
  Completion end = sink.send(TestEvent(1));
  EXPECT_EQ(end.outcome, Outcome::SinkDown);
  EXPECT_NE(end.error.find("has an address that"), std::string::npos) << end.error;
  EXPECT_EQ(inner.connections(), 0);
}

TEST(WebhookOauth, OptionsThatDoNotFitAreRefused) {
  Options server{{"url", "https://crm.example/"},
                 {"oauth_token_url", "https://login.example/token"},
                 {"oauth_client_id", "outbox"}};
  const Options nothing;
  EXPECT_EQ(refusal(server, nullptr), "");
  EXPECT_EQ(refusal(server, &secret), "");
  EXPECT_EQ(refusal(server, &nothing), "option \"oauth_client_secret\" is required with \"oauth_token_url\"");
  Options both = secret;
  both["token"] = "x";
  EXPECT_EQ(refusal(server, &both), "options \"oauth_token_url\" and \"token\" exclude each other");
  server.erase("oauth_client_id");
  EXPECT_EQ(refusal(server, nullptr), "option \"oauth_client_id\" is required with \"oauth_token_url\"");
  EXPECT_EQ(refusal({{"url", "https://crm.example/"}, {"oauth_parameters", R"({"scope": "x"})"}}, nullptr),
            "option \"oauth_token_url\" is required with \"oauth_parameters\"");
  EXPECT_EQ(refusal({{"url", "https://crm.example/"}}, &secret),
            "option \"oauth_token_url\" is required with \"oauth_client_secret\"");
  server["oauth_client_id"] = "outbox";
  server["oauth_token_url"] = "http://login.example/token";
  EXPECT_EQ(refusal(server, nullptr), "invalid value for option \"oauth_token_url\": \"http://login.example/token\"");
}

TEST(WebhookOauth, APreviewShowsNoToken) {
  Options server{{"url", "https://crm.example/"},
                 {"oauth_token_url", "https://login.example/token"},
                 {"oauth_client_id", "outbox"}};
  auto config = SinkKind::find("webhook")->parse(server, &secret);
  TestEvent event(1);
  for (const PreviewPart &part : config->preview(event.get(), 1))
    if (part.name == "Authorization") {
      EXPECT_EQ(part.text, "(Bearer ***)");
      return;
    }
  ADD_FAILURE() << "the header is missing";
}
