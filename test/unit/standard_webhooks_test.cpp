#include "delivery/base/text_view.h"
#include "delivery/formats/standard_webhooks.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "delivery/base/text_view.h"
#include "delivery/options/options.h"

#include "bad_input.h"

using namespace outbox;

namespace {

ob_event make_event(std::string_view payload) {
  ob_event event{};
  for (uint8_t i = 0; i < 16; ++i)
    event.id[i] = static_cast<uint8_t>(0x01 + 0x11 * i);
  event.created_at_us = 1714564800007000;
  event.event_type = as_text("order.created");
  event.payload = as_text(payload);
  return event;
}

}  // namespace

TEST(StandardWebhooks, SignsAsTheSpecificationsVector) {
  const auto key = standard_webhooks::SigningKey::parse("secret", "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw");
  for (const auto &copy : {key, key}) /* a signature changes nothing of it */
    EXPECT_EQ(copy.sign("msg_p5jXN8AQM9LWM0D4loKWxJek", 1614265330, "{\"test\": 2432232314}"),
              "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=");
}

TEST(StandardWebhooks, SecretPrefixAndPaddingAreOptional) {
  const auto parse = [](const std::string &secret) { return standard_webhooks::SigningKey::parse("secret", secret); };
  EXPECT_TRUE(parse("MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw") == parse("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"));
  EXPECT_TRUE(parse("whsec_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=") ==
              parse("whsec_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"));
  EXPECT_FALSE(parse("whsec_" + std::string(86, 'A')) == parse("whsec_" + std::string(43, 'A'))) << "64 and 32 bytes";
}

TEST(StandardWebhooks, RefusesSecretsThatCannotProtectAndNeverShowsThem) {
  for (std::string secret : {std::string(), std::string("whsec_"), std::string("whsec_c2hvcnQ="),
                             std::string("whsec_not base64 at all, no!!"), "whsec_" + std::string(100, 'A'),
                             "whsec_" + std::string(33, 'A'), std::string(100000, 'A'),
                             std::string("whsec_\nMfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")}) {
    BadInput bad = bad_input_of([&] { return standard_webhooks::SigningKey::parse("secret", secret); });
    EXPECT_EQ(bad.kind, OB_BAD_VALUE) << secret.substr(0, 50);
    EXPECT_EQ(bad.subject, "secret");
    std::string shown = bad.what() + bad.detail + bad.hint;
    if (secret.size() > 6) {
      EXPECT_EQ(shown.find(secret.substr(6)), std::string::npos);
    }
  }
}

/* The signature is that of Python's "cryptography" for the key of the bytes 0 to 31. */
TEST(StandardWebhooks, SignsByAPrivateKey) {
  const std::string
      alone = "whsk_AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=",
      pair = "whsk_AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8DoQe/884Qvh1w3RjnS8CZZ+TWMJulDV8d3IZkElUxuA==";
  for (const std::string &text : {alone, pair}) {
    auto key = standard_webhooks::SigningKey::parse("secret", text);
    EXPECT_EQ(key.public_key(), "whpk_A6EHv/POEL4dcN0Y50vAmWfk1jCbpQ1fHdyGZBJVMbg=");
    EXPECT_EQ(key.sign("msg_p5jXN8AQM9LWM0D4loKWxJek", 1614265330, "{\"test\": 2432232314}"),
              "v1a,yoUrgEkc12aGqm0n4Sydmdz55xJfTz4AsAgieHFjmkR7LJtqVCZOQYzvvHjI5kAey+r4iaBGxTFRrl2iBQxtDQ==");
  }
  std::string other_half = pair;
  other_half[60] = other_half[60] == 'A' ? 'B' : 'A';
  for (const std::string &bad :
       {std::string("whsk_"), std::string("whsk_c2hvcnQ="), other_half,
        std::string("whpk_AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8="), "whsk_" + std::string(100000, 'A')})
    EXPECT_THROW(standard_webhooks::SigningKey::parse("secret", bad), BadInput) << bad.substr(0, 60);
}

TEST(StandardWebhooks, BodyKeepsThePayloadsText) {
  ob_event event = make_event("{\"amount\": 12345678901234567890.123456789012345678, \"a\": [1.0, 1e400]}");
  EXPECT_EQ(standard_webhooks::body(event),
            "{\"id\":\"01122334-4556-6778-899a-abbccddeef00\",\"type\":\"order.created\","
            "\"timestamp\":\"2024-05-01T12:00:00.007Z\","
            "\"data\":{\"amount\": 12345678901234567890.123456789012345678, \"a\": [1.0, 1e400]}}");
}

TEST(StandardWebhooks, BodyEscapesTheTypeAndIsAlwaysJson) {
  ob_event event = make_event("null");
  std::string_view type = "a\"b\\c\n\x01\xc3\xa9\xff";
  event.event_type = as_text(type);
  auto parsed = nlohmann::json::parse(standard_webhooks::body(event));
  EXPECT_EQ(parsed["type"], "a\"b\\c\n\x01\xc3\xa9\xef\xbf\xbd");
}

TEST(StandardWebhooks, TombstoneIsNullAndBytesAreTheBody) {
  ob_event event = make_event("");
  event.payload = {nullptr, 0};
  auto parsed = nlohmann::json::parse(standard_webhooks::body(event));
  EXPECT_TRUE(parsed.at("data").is_null());
  event.payload = as_text(std::string_view("\x00\xff{", 3));
  event.payload_is_bytes = true;
  EXPECT_EQ(standard_webhooks::body(event), std::string("\x00\xff{", 3));
}

TEST(StandardWebhooks, TimestampsAtTheEdges) {
  EXPECT_EQ(standard_webhooks::timestamp(0), "1970-01-01T00:00:00.000Z");
  EXPECT_EQ(standard_webhooks::timestamp(-1), "1969-12-31T23:59:59.999Z");
  EXPECT_EQ(standard_webhooks::timestamp(951782400000), "2000-02-29T00:00:00.000Z");
}
