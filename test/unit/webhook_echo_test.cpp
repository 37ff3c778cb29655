/* A peer that repeats the request, in the encodings of common frameworks: no credential appears in an error. */
#include "echoes.h"
#include "webhook_fixture.h"

using namespace outbox;
using Peer = FaultServer::Peer;

namespace {

void echo(const Options &mapping, const std::vector<std::string> &secrets) {
  Shared<std::string> body;
  FaultServer peer([&](const HttpRequest &, Peer &to) { return to.answer(500, {}, body.get()); });
  WebhookHarness crm(WebhookHarness::local(peer), mapping);
  uint64_t ticket = 0;
  for (const std::string &secret : secrets)
    for (const echoes::Encoding &encoding : echoes::all()) {
      std::string sent = encoding.encode(secret);
      body.set("you sent <" + sent + "> to me");
      std::string error = crm.send(TestEvent(++ticket, 1)).error;
      echoes::expect_no_part(error, sent, encoding);
      EXPECT_TRUE(error.starts_with("HTTP 500: you sent <") && error.ends_with("> to me")) << error;
      /* The beginning of a secret at a cut is not masked. */
      std::string beginning = sent.substr(0, sent.size() - 1);
      body.set(std::string(OB_ERROR_MAX - beginning.size(), '.') + sent + "> to me");
      error = crm.send(TestEvent(++ticket, 1)).error;
      echoes::expect_no_part(error, beginning, encoding);
    }
}

}  // namespace

TEST(WebhookEcho, OfABearerToken) {
  std::string token = "k/9v+Zx~Q7/wT2_p-L4/m8=N3.sR6/yB1\\uC5/dE0&fG%2F";
  echo({{"token", token}}, {token});
}

TEST(WebhookEcho, OfBasicCredentials) {
  std::string password = "p/a\"s\\s w<o>rd+é:/&%41";
  echo({{"user", "alad/din"}, {"password", password}},
       {echoes::base64("alad/din:" + password), "alad/din:" + password, password});
}

TEST(WebhookEcho, OfHeadersAndSigningKeys) {
  echo(
      {{"headers", R"({"X-Key": "Token s3cr3t/k3y+of=mine"})"}, {"secret", "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"}},
      {"s3cr3t/k3y+of=mine", "MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"});
}

/* The body repeats the secret, so that wherever it is cut, that is within one. */
TEST(WebhookEcho, WhereverItIsCut) {
  const std::string token = "zqx7-horse-battery-staple";
  Shared<std::string> body;
  FaultServer peer([&](const HttpRequest &, Peer &to) { return to.answer(500, {}, body.get()); });
  WebhookHarness crm(WebhookHarness::local(peer), {{"token", token}});
  for (size_t before = 0; before <= token.size(); before++) {
    std::string said(before + 1, '.');
    while (said.size() < 2 * OB_ERROR_MAX)
      said += " " + token;
    body.set(said);
    const std::string error = crm.send(TestEvent(before + 1, 1)).error;
    EXPECT_EQ(error.find("zqx7"), error.npos) << before;
    EXPECT_NE(error.find("***"), error.npos) << error;
  }
}
