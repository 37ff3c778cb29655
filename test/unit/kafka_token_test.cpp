/* Tokens of SASL/OAUTHBEARER: their options, what is fetched, and how librdkafka is told. */
#include "sinks/kafka/kafka_token.h"

#include <algorithm>

#include <gtest/gtest.h>

#include "delivery/base/base64.h"
#include "sinks/kafka/kafka_config.h"
#include "bad_input.h"
#include "door.h"
#include "fault_server.h"
#include "probe_door.h"

using namespace outbox;

namespace {

const Stop never = [] { return false; };

Options oauth(const std::string &method, Options more = {}) {
  more.insert({{"bootstrap_servers", "127.0.0.1:1"},
               {"security_protocol", "sasl_plaintext"},
               {"sasl_mechanism", "OAUTHBEARER"},
               {"sasl_oauthbearer_method", method}});
  return more;
}

Options endpoint(const std::string &url, Options more = {}) {
  more.insert({{"sasl_oauthbearer_token_endpoint_url", url}, {"sasl_oauthbearer_client_id", "outbox"}});
  return oauth("oidc", std::move(more));
}

const Options secret{{"sasl_oauthbearer_client_secret", "hush-hush-hush"}};
const Options keys{{"aws_access_key_id", "AKIAIOSFODNN7EXAMPLE"}, {"aws_secret_access_key", "hush-hush-hush"}};

/* The message and subject of the BadInput. */
std::string refusal(const Options &server, const Options *mapping) {
  BadInput bad = bad_input_of([&] { KafkaConfig config(server, mapping); });
  EXPECT_EQ(bad.detail.empty(), *bad.what() == '\0');
  return bad.what();
}

door::OptionList list(const Options &options) {
  door::OptionList all;
  for (const auto &[name, value] : options)
    all.push_back({name.c_str(), value.c_str()});
  return all;
}

}  // namespace

TEST(KafkaToken, OptionsThatDoNotFitAreRefused) {
  const std::string url = "https://login.example/token";
  EXPECT_EQ(refusal(endpoint(url), nullptr), "");
  EXPECT_EQ(refusal(endpoint(url), &secret), "");
  const Options nothing;
  EXPECT_EQ(refusal(endpoint(url), &nothing), "option \"sasl_oauthbearer_client_secret\" is missing");
  EXPECT_EQ(refusal(oauth("oidc"), nullptr), "option \"sasl_oauthbearer_token_endpoint_url\" is missing");
  EXPECT_EQ(refusal(oauth("aws_msk_iam"), nullptr), "option \"aws_region\" is missing");
  EXPECT_EQ(refusal(oauth("aws_msk_iam", {{"aws_region", "eu-central-1"}}), nullptr), "");
  EXPECT_EQ(refusal(oauth("aws_msk_iam", {{"aws_region", "eu-central-1"}}), &keys), "");
  EXPECT_EQ(refusal(oauth("aws_msk_iam", {{"aws_region", "eu-central-1"}}), &nothing),
            "option \"aws_access_key_id\" is missing");
  EXPECT_EQ(refusal(oauth("aws_msk_iam", {{"aws_region", "r"}, {"aws_credentials", "chain"}}), &nothing), "");
  EXPECT_EQ(refusal(oauth("aws_msk_iam", {{"aws_region", "r"}, {"sasl_oauthbearer_scope", "s"}}), nullptr),
            "option \"sasl_oauthbearer_scope\" has no meaning here");
  EXPECT_EQ(refusal(endpoint(url, {{"aws_region", "r"}}), nullptr), "option \"aws_region\" has no meaning here");
  EXPECT_EQ(refusal({{"bootstrap_servers", "a"}, {"aws_region", "r"}}, nullptr),
            "option \"aws_region\" has no meaning here");
}

TEST(KafkaToken, ValuesAreCheckedWhateverTheLibraryWasBuiltWith) {
  ob_error error;
  auto check = [&](ob_scope scope, const char *name, const char *value, bool superuser = true) {
    return border::check_options("kafka", scope, {{name, value}}, superuser, &error);
  };
  EXPECT_FALSE(check(OB_USER_MAPPING, "sasl_oauthbearer_client_secret", "hu\nsh"));
  EXPECT_EQ(std::string(error.message).find("hu"), std::string::npos) << error.message;
  EXPECT_TRUE(check(OB_USER_MAPPING, "sasl_oauthbearer_client_secret", "hush"));
  EXPECT_FALSE(check(OB_SERVER, "sasl_oauthbearer_method", "aws"));
  EXPECT_FALSE(check(OB_SERVER, "sasl_oauthbearer_token_endpoint_url", "https://me@login.example/"));
  EXPECT_FALSE(check(OB_SERVER, "sasl_oauthbearer_extensions", "auth=x"));
  EXPECT_FALSE(check(OB_SERVER, "aws_region", "eu_central"));
  EXPECT_FALSE(check(OB_SERVER, "aws_credentials", "chain", false));
  EXPECT_STREQ(error.message, "only a superuser may set option \"aws_credentials\"");
}

/* The parts of a token for MSK. The signature is that of aws_signature_test.cpp's vectors for "kafka-cluster". */
TEST(KafkaToken, ForMskIsAPresignedUrl) {
  Options mapping = keys;
  mapping["aws_session_token"] = "to/ken";
  KafkaConfig config(oauth("aws_msk_iam", {{"aws_region", "us-west-2"}}), &mapping);
  auto grant = config.tokens()->fetch(never);
  auto left = grant.expires - std::chrono::steady_clock::now();
  EXPECT_GT(left, std::chrono::seconds(890));
  EXPECT_LE(left, std::chrono::seconds(900));
  EXPECT_TRUE(grant.value.extensions.empty());
  std::string text = grant.value.text, url;
  EXPECT_EQ(text.find_first_of("+/="), text.npos);
  std::replace(text.begin(), text.end(), '-', '+');
  std::replace(text.begin(), text.end(), '_', '/');
  ASSERT_TRUE(append_base64_decoded(text, url));
  EXPECT_TRUE(url.starts_with("https://kafka.us-west-2.amazonaws.com/?Action=kafka-cluster%3AConnect&"
                              "X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Credential=AKIAIOSFODNN7EXAMPLE%2F"))
      << url;
  EXPECT_NE(url.find("%2Fus-west-2%2Fkafka-cluster%2Faws4_request&"), url.npos) << url;
  EXPECT_NE(url.find("&X-Amz-Expires=900&X-Amz-SignedHeaders=host&X-Amz-Security-Token=to%2Fken&X-Amz-Signature="),
            url.npos)
      << url;
  EXPECT_TRUE(url.ends_with("&User-Agent=outbox")) << url;
}

TEST(KafkaToken, ASinkWithoutATokenIsDownAndSaysWhy) {
  FaultServer peer([](const HttpRequest &, FaultServer::Peer &to) {
    return to.answer(401, {}, "{\"error\": \"invalid_client\", \"error_description\": \"not hush-hush-hush\"}");
  });
  const Options server = endpoint(peer.url("/token"));
  door::Engine engine;
  ob_sink *sink = engine.open("kafka", list(server), list(secret));
  ASSERT_NE(sink, nullptr) << engine.error.message << engine.error.detail;
  auto says = [&](const std::string &words) {
    return std::string(engine.status(sink).last_error).find(words) != std::string::npos;
  };
  EXPECT_TRUE(engine.until([&] { return says("no token from the token endpoint " + peer.url("/token")); }))
      << engine.status(sink).last_error;
  EXPECT_TRUE(says("HTTP 401 invalid_client (not ***): look at sasl_oauthbearer_client_id"))
      << engine.status(sink).last_error;
  EXPECT_EQ(engine.log.find("hush"), std::string::npos);

  door::Probe probe(engine, "kafka", list(server), list(secret));
  ASSERT_TRUE(probe.end());
  EXPECT_FALSE(probe.step("token").ok);
  EXPECT_NE(std::string(probe.step("token").message).find("invalid_client"), std::string::npos) << probe.text();
  EXPECT_EQ(probe.steps.size(), 1u) << probe.text();
}
