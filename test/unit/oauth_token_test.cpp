#include "delivery/identity/oauth_token.h"

#include <atomic>
#include <chrono>
#include <ctime>

#include <gtest/gtest.h>

#include "delivery/base/base64.h"
#include "delivery/options/options.h"
#include "fault_server.h"

using namespace outbox;
using namespace std::chrono_literals;

namespace {

const Stop no_stop = [] { return false; };

std::string refusal_of(const OauthClient &client, const Stop &stop = no_stop) {
  try {
    (void)client.fetch(stop);
  } catch (const NotGranted &why) {
    return why.what();
  }
  ADD_FAILURE() << "it was granted";
  return {};
}

bool says(const std::string &text, const std::string &part) {
  return text.find(part) != text.npos;
}

std::chrono::steady_clock::duration left(const Grant<OauthToken> &grant) {
  return grant.expires - std::chrono::steady_clock::now();
}

}  // namespace

TEST(OauthToken, IsGrantedToAClient) {
  FaultServer endpoint([](const HttpRequest &request, FaultServer::Peer &peer) {
    EXPECT_EQ(request.line, "POST /token HTTP/1.1");
    EXPECT_EQ(request.body, "grant_type=client_credentials&audience=https%3A%2F%2Fapi&scope=a%20b");
    std::string basic = "Basic ";
    append_base64("my%20client:s%3Acret%2F", basic);
    EXPECT_EQ(request.headers.at("authorization"), basic);
    return peer.answer(200, "Content-Type: application/json\r\n",
                       "{\"access_token\": \"the.token\", \"token_type\": \"bearer\", \"expires_in\": 120}");
  });
  OauthClient client{.token_url = endpoint.url("/token"),
                     .client_id = "my client",
                     .client_secret = "s:cret/",
                     .parameters = {{"scope", "a b"}, {"audience", "https://api"}}};
  auto grant = client.fetch(no_stop);
  EXPECT_EQ(grant.value.text, "the.token");
  EXPECT_GT(left(grant), 110s);
  EXPECT_LE(left(grant), 120s);
}

TEST(OauthToken, ItsEndIsInTheTokenIfTheEndpointDoesNotSay) {
  std::string claims;
  append_base64("{\"exp\": " + std::to_string(time(nullptr) + 60) + "}", claims);
  std::string token = "e30." + claims.substr(0, claims.find('=')) + ".c2ln";
  FaultServer endpoint([&](const HttpRequest &, FaultServer::Peer &peer) {
    return peer.answer(200, {}, "{\"access_token\": \"" + token + "\"}");
  });
  auto grant = OauthClient{.token_url = endpoint.url(), .client_id = "c", .client_secret = "s"}.fetch(no_stop);
  EXPECT_GT(left(grant), 50s);
  EXPECT_LE(left(grant), 60s);
  token = "opaque";
  grant = OauthClient{.token_url = endpoint.url(), .client_id = "c", .client_secret = "s"}.fetch(no_stop);
  EXPECT_GT(left(grant), 290s);
  EXPECT_LE(left(grant), 300s);
}

TEST(OauthToken, ARefusalIsExplainedAndShowsNoSecret) {
  FaultServer endpoint([](const HttpRequest &request, FaultServer::Peer &peer) {
    std::string description = "unknown client, or secret hush-hush-hush, " + request.headers.at("authorization");
    return peer.answer(401, {}, "{\"error\": \"invalid_client\", \"error_description\": \"" + description + "\"}");
  });
  std::string text = refusal_of({.token_url = endpoint.url("/token"),
                                 .client_id = "outbox",
                                 .client_secret = "hush-hush-hush",
                                 .advice = "look at option client_secret"});
  EXPECT_TRUE(says(text, "no token from the token endpoint " + endpoint.url("/token") +
                             " for client \"outbox\": HTTP 401 invalid_client (unknown client, or secret ***"))
      << text;
  EXPECT_TRUE(says(text, "look at option client_secret")) << text;
  std::string basic;
  append_base64("outbox:hush-hush-hush", basic);
  EXPECT_FALSE(says(text, "hush")) << text;
  EXPECT_FALSE(says(text, basic)) << text;
}

TEST(OauthToken, AnswersThatAreNoGrant) {
  std::string body;
  FaultServer endpoint([&](const HttpRequest &, FaultServer::Peer &peer) { return peer.answer(200, {}, body); });
  for (auto [answer, words] :
       {std::pair("", "contains no access_token"),
        {"<html>", "contains no access_token"},
        {"{\"access_token\": \"a b\"}", "contains no access_token"},
        {"{\"access_token\": {\"a\": 1}}", "contains no access_token"},
        {"{\"access_token\": \"x\", \"token_type\": \"mac\"}", "of another type than Bearer"}}) {
    body = answer;
    EXPECT_TRUE(says(refusal_of({.token_url = endpoint.url(), .client_id = "c", .client_secret = "s"}), words))
        << answer;
  }
}

TEST(OauthToken, NoRequestToANetworkThatIsNotAllowed) {
  FaultServer endpoint(
      [](const HttpRequest &, FaultServer::Peer &peer) { return peer.answer(200, {}, "{\"access_token\": \"x\"}"); });
  OauthClient client{.token_url = endpoint.url(), .client_id = "c", .client_secret = "s", .guard = NetworkGuard({})};
  EXPECT_TRUE(says(refusal_of(client),
                   "the url's host has an address that is the database server itself: if it is meant, a "
                   "superuser adds 127.0.0.0/8 to the server's option allow_networks"));
  EXPECT_EQ(endpoint.connections(), 0);
  client.guard = NetworkGuard(parse_networks("allow_networks", "127.0.0.0/8"));
  EXPECT_EQ(client.fetch(no_stop).value.text, "x");
}

TEST(OauthToken, AnEndpointThatIsDownOrHangs) {
  DeadPort dead;
  EXPECT_TRUE(says(refusal_of({.token_url = dead.url, .client_id = "c", .client_secret = "s"}), "connect"));
  FaultServer endpoint([](const HttpRequest &, FaultServer::Peer &peer) { return peer.hang(); });
  auto began = std::chrono::steady_clock::now();
  EXPECT_TRUE(says(refusal_of({.token_url = endpoint.url(), .client_id = "c", .client_secret = "s"},
                              [&] { return std::chrono::steady_clock::now() > began + 200ms; }),
                   "it did not answer in time"));
}

TEST(OauthToken, NoRedirectIsFollowed) {
  FaultServer endpoint(
      [](const HttpRequest &, FaultServer::Peer &peer) { return peer.answer(307, "Location: /elsewhere\r\n"); });
  EXPECT_TRUE(says(refusal_of({.token_url = endpoint.url(), .client_id = "c", .client_secret = "s"}), "HTTP 307"));
  EXPECT_EQ(endpoint.requests(), 1);
}
