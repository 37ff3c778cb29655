#include "delivery/identity/aws_signature.h"

#include <algorithm>
#include <fstream>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

using namespace outbox;

namespace {

const aws::Credentials suite{"AKIDEXAMPLE", "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY", ""};
constexpr int64_t suite_time = 1440938160;

std::string bytes(const std::string &hex) {
  std::string text;
  for (size_t i = 0; i < hex.size(); i += 2)
    text += static_cast<char>(std::stoi(hex.substr(i, 2), nullptr, 16));
  return text;
}

std::vector<std::string> sorted_parameters(const std::string &query) {
  std::vector<std::string> parameters;
  for (size_t at = 0; at <= query.size();) {
    size_t end = std::min(query.find('&', at), query.size());
    if (end > at)
      parameters.push_back(query.substr(at, end - at));
    at = end + 1;
  }
  std::sort(parameters.begin(), parameters.end());
  return parameters;
}

}  // namespace

/* "get-vanilla" of AWS's own test suite for Signature Version 4. */
TEST(AwsSignature, SignsAsTheTestSuite) {
  aws::Headers added =
      aws::sign({.method = "GET", .host = "example.amazonaws.com"}, {"us-east-1", "service"}, suite, suite_time);
  aws::Headers expected{{"x-amz-date", "20150830T123600Z"},
                        {"authorization",
                         "AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE/20150830/us-east-1/service/aws4_request, "
                         "SignedHeaders=host;x-amz-date, "
                         "Signature=5fa00fa31553b73ebf1942676e86291e8372ff2a2260956d9b8aae1d763fbf31"}};
  EXPECT_EQ(added, expected);
}

/* Requests in all their corners, signed by botocore: aws_signature/vectors.py. */
TEST(AwsSignature, SignsAsBotocore) {
  std::ifstream file("test/unit/aws_signature/vectors.json");
  nlohmann::json cases = nlohmann::json::parse(file);
  ASSERT_GT(cases.size(), 50u);
  for (const auto &each : cases) {
    std::string method = each["method"], host = each["host"], path = each["path"], query = each["query"],
                body = bytes(each["body"]), region = each["region"], service = each["service"];
    aws::Request request{.method = method, .host = host, .path = path, .query = query, .headers = {}, .body = body};
    for (const auto &[name, value] : each["headers"].items())
      request.headers.emplace_back(name, value);
    aws::Credentials credentials{each["access_key_id"], each["secret_access_key"], each["session_token"]};
    if (each["signed"].contains("query")) {
      EXPECT_EQ(
          sorted_parameters(aws::presign(request, {region, service}, credentials, each["time"], each["seconds"])),
          each["signed"]["query"].get<std::vector<std::string>>())
          << each;
      continue;
    }
    nlohmann::json headers;
    for (const auto &[name, value] : aws::sign(request, {region, service}, credentials, each["time"]))
      headers[name] = value;
    EXPECT_EQ(headers, each["signed"]["headers"]) << each;
  }
}

TEST(AwsSignature, JoinsHeadersOfOneName) {
  aws::Request once{.method = "GET", .host = "h", .headers = {{"My-Header", "a,b c"}}};
  aws::Request twice{.method = "GET", .host = "h", .headers = {{"My-Header", " a "}, {"my-header", "b  c"}}};
  EXPECT_EQ(aws::sign(once, {"r", "s"}, suite, suite_time), aws::sign(twice, {"r", "s"}, suite, suite_time));
}
