#include "delivery/identity/aws_credentials.h"

#include <chrono>
#include <cstdio>
#include <ctime>
#include <fstream>
#include <mutex>

#include <gtest/gtest.h>

#include "bad_input.h"
#include "fault_server.h"
#include "patience.h"

using namespace outbox;
using namespace std::chrono_literals;

namespace {

const Stop never = [] { return false; };

std::string in_an_hour() {
  time_t when = time(nullptr) + 3600;
  tm parts{};
  char text[32];
  strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", gmtime_r(&when, &parts));
  return text;
}

std::string json_answer(const std::string &id, const std::string &code = {}) {
  return (code.empty() ? std::string("{") : "{\"Code\":\"" + code + "\",\"Message\":\"why\",") +
         "\"AccessKeyId\":\"" + id + "\",\"SecretAccessKey\":\"s\",\"Token\":\"t\",\"Expiration\":\"" + in_an_hour() +
         "\"}";
}

void expect_an_hour(const Grant<aws::Credentials> &grant) {
  auto left = grant.expires - std::chrono::steady_clock::now();
  EXPECT_GT(left, 59min);
  EXPECT_LE(left, 60min);
}

/* The text of the NotGranted. */
std::string failure(const aws::CredentialSource &source, const Stop &stop = never) {
  try {
    (void)source.fetch(stop);
  } catch (const NotGranted &why) {
    return why.what();
  }
  ADD_FAILURE() << "it was granted";
  return {};
}

bool has(const std::string &text, const std::string &part) {
  return text.find(part) != text.npos;
}

class TokenFile {
public:
  explicit TokenFile(const std::string &text) : name("/tmp/outbox-token-" + std::to_string(getpid())) { write(text); }
  ~TokenFile() { remove(name.c_str()); }
  void write(const std::string &text) const { std::ofstream(name) << text; }
  const std::string name;
};

}  // namespace

TEST(AwsCredentials, OfTheEnvironmentComeFirst) {
  auto grant = aws::CredentialSource::chain({{"AWS_ACCESS_KEY_ID", "AKIDEXAMPLE"},
                                             {"AWS_SECRET_ACCESS_KEY", "s"},
                                             {"AWS_WEB_IDENTITY_TOKEN_FILE", "/nowhere"}})
                   .fetch(never);
  EXPECT_EQ(grant.value.access_key_id, "AKIDEXAMPLE");
  EXPECT_EQ(grant.value.secret_access_key, "s");
  EXPECT_EQ(grant.expires, Grant<aws::Credentials>::Time::max());
}

TEST(AwsCredentials, ByWebIdentity) {
  TokenFile token("header.pay+load.sign\n");
  FaultServer sts([](const HttpRequest &request, FaultServer::Peer &peer) {
    if (has(request.body, "RoleArn=arn%3Aaws%3Aiam%3A%3A1%3Arole%2Fother"))
      return peer.answer(
          403, {},
          "<ErrorResponse><Error><Type>Sender</Type><Code>AccessDenied</Code><Message>Not authorized to "
          "perform sts:AssumeRoleWithWebIdentity</Message></Error></ErrorResponse>");
    EXPECT_EQ(request.line, "POST / HTTP/1.1");
    EXPECT_EQ(request.body,
              "Action=AssumeRoleWithWebIdentity&Version=2011-06-15&RoleArn=arn%3Aaws%3Aiam%3A%3A1%3Arole%2Fx&"
              "RoleSessionName=outbox&WebIdentityToken=header.pay%2Bload.sign");
    return peer.answer(
        200, {},
        "<AssumeRoleWithWebIdentityResponse><AssumeRoleWithWebIdentityResult><Credentials><SessionToken>"
        "tok==</SessionToken><SecretAccessKey>se/cret</SecretAccessKey><Expiration>" +
            in_an_hour() +
            "</Expiration><AccessKeyId>ASIAEXAMPLE</AccessKeyId></Credentials>"
            "</AssumeRoleWithWebIdentityResult></AssumeRoleWithWebIdentityResponse>");
  });
  aws::Environment environment{{"AWS_WEB_IDENTITY_TOKEN_FILE", token.name},
                               {"AWS_ROLE_ARN", "arn:aws:iam::1:role/x"},
                               {"AWS_ENDPOINT_URL_STS", sts.url("")}};
  auto grant = aws::CredentialSource::chain(environment).fetch(never);
  EXPECT_EQ(grant.value.access_key_id, "ASIAEXAMPLE");
  EXPECT_EQ(grant.value.secret_access_key, "se/cret");
  EXPECT_EQ(grant.value.session_token, "tok==");
  expect_an_hour(grant);

  environment["AWS_ROLE_ARN"] = "arn:aws:iam::1:role/other";
  EXPECT_EQ(failure(aws::CredentialSource::chain(environment)),
            "no AWS credentials for role \"arn:aws:iam::1:role/other\" by web identity from " + sts.url("") +
                ": HTTP 403 AccessDenied (Not authorized to perform sts:AssumeRoleWithWebIdentity)");
  environment["AWS_WEB_IDENTITY_TOKEN_FILE"] = "/nowhere/token";
  EXPECT_TRUE(has(failure(aws::CredentialSource::chain(environment)),
                  "the file \"/nowhere/token\", which AWS_WEB_IDENTITY_TOKEN_FILE names, cannot be read"));
}

TEST(AwsCredentials, OfAContainerWithATokenThatChanges) {
  TokenFile token("first\n");
  FaultServer metadata([](const HttpRequest &request, FaultServer::Peer &peer) {
    EXPECT_EQ(request.line, "GET /v1/credentials HTTP/1.1");
    return peer.answer(200, {}, json_answer("ASIA" + request.headers.at("authorization")));
  });
  auto source = aws::CredentialSource::chain({{"AWS_CONTAINER_CREDENTIALS_FULL_URI", metadata.url("/v1/credentials")},
                                              {"AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE", token.name}});
  auto grant = source.fetch(never);
  EXPECT_EQ(grant.value.access_key_id, "ASIAfirst");
  EXPECT_EQ(grant.value.session_token, "t");
  expect_an_hour(grant);
  token.write("second");
  EXPECT_EQ(source.fetch(never).value.access_key_id, "ASIAsecond");
}

TEST(AwsCredentials, NoContainerMetadataUnencryptedFromElsewhere) {
  for (const char *url :
       {"http://192.0.2.1/x", "http://example.com/x", "http://user@127.0.0.1/x", "ftp://127.0.0.1/"})
    EXPECT_TRUE(has(failure(aws::CredentialSource::chain({{"AWS_CONTAINER_CREDENTIALS_FULL_URI", url}})),
                    "neither an https URL nor one of the container's own addresses"))
        << url;
}

TEST(AwsCredentials, OfAnInstance) {
  std::atomic<bool> has_role{true}, fails{false};
  FaultServer metadata([&](const HttpRequest &request, FaultServer::Peer &peer) {
    if (request.line == "PUT /latest/api/token HTTP/1.1")
      return peer.answer(request.headers.count("x-aws-ec2-metadata-token-ttl-seconds") ? 200 : 400, {}, "the-token");
    auto token = request.headers.find("x-aws-ec2-metadata-token");
    if (token == request.headers.end() || token->second != "the-token")
      return peer.answer(401);
    if (request.line == "GET /latest/meta-data/iam/security-credentials/ HTTP/1.1")
      return has_role ? peer.answer(200, {}, "my-role") : peer.answer(404);
    EXPECT_EQ(request.line, "GET /latest/meta-data/iam/security-credentials/my-role HTTP/1.1");
    return peer.answer(200, {}, json_answer("ASIAINSTANCE", fails ? "AssumeRoleUnauthorizedAccess" : "Success"));
  });
  auto source = aws::CredentialSource::chain({{"AWS_EC2_METADATA_SERVICE_ENDPOINT", metadata.url("/")}});
  auto grant = source.fetch(never);
  EXPECT_EQ(grant.value.access_key_id, "ASIAINSTANCE");
  expect_an_hour(grant);
  fails = true;
  EXPECT_TRUE(has(failure(source), metadata.url("") + ": it says AssumeRoleUnauthorizedAccess (why)"));
  has_role = false;
  std::string text = failure(source);
  EXPECT_TRUE(has(text, "none of AWS_ACCESS_KEY_ID, AWS_WEB_IDENTITY_TOKEN_FILE")) << text;
  EXPECT_TRUE(has(text, "the instance has no role: give it an instance profile")) << text;
}

TEST(AwsCredentials, AServiceThatDoesNotAnswerIsNotWaitedForLong) {
  FaultServer metadata([](const HttpRequest &, FaultServer::Peer &peer) { return peer.hang(); });
  auto source = aws::CredentialSource::chain({{"AWS_EC2_METADATA_SERVICE_ENDPOINT", metadata.url("")}});
  auto began = std::chrono::steady_clock::now();
  EXPECT_TRUE(has(failure(source), "this is no EC2 instance"));
  EXPECT_LT(std::chrono::steady_clock::now() - began, patient(8s));
  began = std::chrono::steady_clock::now();
  EXPECT_TRUE(has(failure(source, [] { return true; }), "did not answer in time"));
  EXPECT_LT(std::chrono::steady_clock::now() - began, 1900ms);
}

TEST(AwsCredentials, TheOptionsNameOneSource) {
  Options keys{{"aws_access_key_id", "AKIAIOSFODNN7EXAMPLE"}, {"aws_secret_access_key", "s"}};
  const OptionTable<aws::CredentialOptions> table(aws::CredentialOptions::rows());
  auto refusal = [&](const Options &server, const Options &mapping) {
    aws::CredentialOptions options;
    table.read(server, OB_SERVER, options);
    table.read(mapping, OB_USER_MAPPING, options);
    return std::string(bad_input_of([&] { return options.source(true); }).what());
  };
  EXPECT_EQ(refusal({}, keys), "");
  EXPECT_EQ(aws::CredentialOptions().source(false), nullptr);
  EXPECT_EQ(refusal({}, {}), "option \"aws_access_key_id\" is missing");
  EXPECT_EQ(refusal({{"aws_credentials", "chain"}}, keys),
            "options \"aws_credentials\" and \"aws_access_key_id\" exclude each other");
  EXPECT_EQ(refusal({}, {{"aws_access_key_id", "AKIAIOSFODNN7EXAMPLE"}}),
            "option \"aws_secret_access_key\" is required with \"aws_access_key_id\"");
  EXPECT_EQ(refusal({{"aws_credentials", "chain"}}, {{"aws_session_token", "t"}}),
            "option \"aws_access_key_id\" is required with \"aws_session_token\"");
  auto rows = aws::CredentialOptions::rows();
  ASSERT_STREQ(rows[0].name.text, "aws_credentials");
  EXPECT_TRUE(rows[0].superuser);
  aws::CredentialOptions options;
  EXPECT_THROW(rows[0].read(options, "aws_credentials", "mine"), BadInput);
}
