/* What CREATE SERVER and CREATE USER MAPPING may say for a webhook, and what an event must look like. */
#include "webhook_fixture.h"

#include "delivery/retry.h"
#include "delivery/sinks/webhook_config.h"

using namespace outbox;

namespace {

const SinkKind &webhook() {
  return *SinkKind::find("webhook");
}

Options with(const char *name, const std::string &value) {
  return {{"url", "https://example.com/"}, {name, value}};
}

BadInput refused(const Options &server, const Options *mapping = nullptr) {
  try {
    webhook().parse(server, mapping);
  } catch (const BadInput &error) {
    return error;
  }
  ADD_FAILURE() << "accepted";
  return BadInput(OB_OK, "", "");
}

}  // namespace

TEST(WebhookOptions, DefaultsAreTheSpecificationsSchedule) {
  KindDefaults defaults = webhook().defaults({});
  EXPECT_EQ(defaults.max_attempts, 10);
  EXPECT_NO_THROW(RetryPolicy::parse("retry", defaults.retry));
  auto config =
      std::dynamic_pointer_cast<const WebhookConfig>(webhook().parse(with("format", "standard-webhooks"), nullptr));
  EXPECT_EQ(config->timeout.count(), 15'000);
  EXPECT_EQ(config->concurrency, 32u);
}

TEST(WebhookOptions, EachBadValueIsNamed) {
  for (auto &[name, value] : std::vector<std::pair<const char *, std::string>>{
           {"timeout", "99ms"},
           {"timeout", "6min"},
           {"timeout", "15"},
           {"concurrency", "0"},
           {"concurrency", "1001"},
           {"concurrency", "many"},
           {"format", "cloudevents"},
           {"allow_http", "perhaps"},
           {"allow_networks", "10.0.0.0/33"},
           {"headers", "X: 1"},
           {"headers", "[]"},
           {"headers", "{\"X\": {}}"},
           {"headers", "{\"X\": null}"},
           {"headers", "{\"X\": \"a\\r\\nY: b\"}"},
           {"headers", "{\"X\\nY\": \"a\"}"},
           {"headers", "{\"X Y\": \"a\"}"},
           {"headers", "{\"\": \"a\"}"},
           {"headers", "{\"webhook-id\": \"a\"}"},
           {"headers", "{\"Content-Length\": \"1\"}"},
           {"headers", "{\"Authorization\": \"Bearer x\"}"},
           {"headers", "{\"X-A\": \"1\", \"x-a\": \"2\"}"},
           {"ca_pem", "no certificate"},
           {"ca_pem", ""},
           {"ca_pem", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"}}) {
    BadInput error = refused(with(name, value));
    EXPECT_EQ(error.kind, OB_BAD_VALUE) << name << " = " << value;
    EXPECT_EQ(error.subject, name);
    EXPECT_FALSE(error.detail.empty()) << name << " = " << value;
  }
}

TEST(WebhookOptions, UrlsAreHttpsUnlessSaidOtherwiseAndNeverShown) {
  for (const char *url :
       {"", "example.com/hook", "ftp://example.com/", "file:///etc/passwd", "https://", "https://exa mple.com/",
        "https://user:s3cr3t@example.com/", "https://s3cr3t@example.com/", "https://example.com/#s3cr3t",
        "http://example.com/s3cr3t", "https://example.com/\r\ns3cr3t", "gopher://127.0.0.1/",
        "https://example.com:99999/", "https://example.com/${event_type}"}) {
    BadInput error = refused({{"url", url}});
    EXPECT_EQ(error.subject, "url") << url;
    EXPECT_EQ((error.what() + error.detail + error.hint).find("s3cr3t"), std::string::npos);
  }
  EXPECT_NO_THROW(webhook().parse({{"url", "http://example.com/"}, {"allow_http", "on"}}, nullptr));
  EXPECT_NO_THROW(webhook().parse({{"url", "HTTPS://example.com:8443/a?b=c"}}, nullptr));
}

TEST(WebhookOptions, TheUrlMayStandInTheUserMapping) {
  EXPECT_NO_THROW(webhook().parse({}, nullptr));  // it may come later
  Options none, mapping = {{"url", "https://example.com/token"}};
  EXPECT_EQ(refused({}, &none).kind, OB_MISSING_OPTION);
  auto config =
      std::dynamic_pointer_cast<const WebhookConfig>(webhook().parse({{"url", "https://a.example/"}}, &mapping));
  EXPECT_EQ(config->url, "https://example.com/token");
  mapping["url"] = "http://example.com/token";
  EXPECT_EQ(refused({}, &mapping).subject, "url");
}

TEST(WebhookOptions, SecretsAreCheckedAndNeverShown) {
  for (auto &[name, value] : std::vector<std::pair<const char *, std::string>>{{"secret", ""},
                                                                               {"secret", "whsec_c2hvcnQ="},
                                                                               {"secret", "whsec_%%%"},
                                                                               {"bearer_token", ""},
                                                                               {"bearer_token", "two words"},
                                                                               {"bearer_token", "line\nbreak"},
                                                                               {"bearer_token", "caf\xc3\xa9"}}) {
    Options mapping = {{name, value}};
    BadInput error = refused({{"url", "https://example.com/"}}, &mapping);
    EXPECT_EQ(error.subject, name);
    if (value.size() > 6) {
      EXPECT_EQ((error.what() + error.detail + error.hint).find(value.substr(6)), std::string::npos);
    }
  }
}

TEST(WebhookOptions, EventsWithHeadersThatHttpCannotCarryAreRefused) {
  auto config = webhook().parse({{"url", "https://example.com/"}}, nullptr);
  auto check = [&](const char *name, std::string value) {
    TestEvent event(1);
    event.headers = {{name, std::move(value)}};
    config->check_event(event.get());
  };
  EXPECT_NO_THROW(check("traceparent", "00-ab caf\xc3\xa9\t."));
  EXPECT_NO_THROW(check("webhook-id", "skipped, since events may go to other sinks too"));
  for (const char *name : {"", "a b", "a:b", "a\r\nb", "a\nb", "caf\xc3\xa9"})
    EXPECT_THROW(check(name, "x"), BadInput) << name;
  for (std::string value : {std::string("a\r\nEvil: b"), std::string("a\nb"), std::string("a\rb"),
                            std::string("a\0b", 3), std::string("a\x01")})
    EXPECT_THROW(check("x", value), BadInput) << value;
  TestEvent bytes(1);
  bytes.event.payload_is_bytes = true;
  bytes.event.content_type = text("text/plain\r\nEvil: b");
  EXPECT_THROW(config->check_event(bytes.get()), BadInput);
}
