/* Options of CREATE SERVER and CREATE USER MAPPING for webhooks, and the requirements for events. */
#include "bad_input.h"
#include "authority.h"
#include "webhook_fixture.h"

#include "delivery/delivery.h"
#include "delivery/options/retry.h"
#include "sinks/webhook/webhook_config.h"

using namespace outbox;

namespace {

const SinkKind &webhook() {
  return *SinkKind::find("webhook");
}

Options with(const char *name, const std::string &value) {
  return {{"url", "https://example.com/"}, {name, value}};
}

BadInput refused(const Options &server, const Options *mapping = nullptr) {
  BadInput bad = bad_input_of([&] { return webhook().parse(server, mapping); });
  EXPECT_NE(bad.kind, OB_OK) << "accepted";
  return bad;
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
  const std::map<std::string, std::vector<std::string>> bad = {
      {"timeout", {"99ms", "6min", "15"}},
      {"concurrency", {"0", "1001", "many"}},
      {"format", {"xml"}},
      {"allow_http", {"perhaps"}},
      {"allow_networks", {"10.0.0.0/33"}},
      {"headers",
       {"X: 1", "[]", R"({"X": {}})", R"({"X": null})", R"({"X": "a\r\nY: b"})", R"({"X\nY": "a"})",
        R"({"X Y": "a"})", R"({"": "a"})", R"({"webhook-id": "a"})", R"({"Svix-Id": "a"})", R"({"X": "${nothing}"})",
        R"({"Content-Type": "${content_type}"})", R"({"Content-Length": "1"})", R"({"Authorization": "Bearer x"})",
        R"({"X-A": "1", "x-a": "2"})"}},
      {"idempotency_key", {"id"}},
      {"method", {"GET", ""}},
      {"body", {"{"}},
      {"batch",
       {"", "0", "10001", "many", "100 events", "100, 100", "100, 17MB", "100, 1MB, 6s", "100, 1MB, 20ms, 1"}},
      {"ssl_ca_pem", {"no certificate", "", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"}},
  };
  for (auto &[name, values] : bad)
    for (const std::string &value : values) {
      BadInput error = refused(with(name.c_str(), value));
      EXPECT_EQ(error.kind, OB_BAD_VALUE) << name << " = " << value;
      EXPECT_EQ(error.subject, name);
      EXPECT_FALSE(error.detail.empty() && error.hint.empty()) << name << " = " << value;
    }
}

TEST(WebhookOptions, ACredentialIsRefusedAmongTheHeadersOfTheServer) {
  for (const char *name :
       {"X-Api-Key", "x_api_key", "Api-Key", "Cookie", "X-Auth-Token", "X-Auth-User", "X-Vault-Token",
        "Private-Token", "X-Shopify-Access-Token", "Ocp-Apim-Subscription-Key", "X-Functions-Key", "aeg-sas-key",
        "X-Client-Secret", "DD-API-KEY", "apikey", "Authorization"}) {
    BadInput error = refused(with("headers", "{\"" + std::string(name) + "\": \"s3cr3t\"}"));
    EXPECT_EQ(error.subject, "headers") << name;
    EXPECT_NE(error.detail.find("carries a secret"), std::string::npos) << error.detail;
    EXPECT_NE(error.hint.find("CREATE USER MAPPING FOR PUBLIC"), std::string::npos) << error.hint;
    EXPECT_EQ((error.detail + error.hint).find("s3cr3t"), std::string::npos);
    Options mapping = {{"headers", "{\"" + std::string(name) + "\": \"s3cr3t\"}"}};
    EXPECT_NO_THROW(parse_webhook({{"url", "https://example.com/"}}, &mapping)) << name;
  }
  EXPECT_EQ(refused(with("headers", R"({"X-Api-Key": "s3cr3t${aggregate_id}"})")).subject, "headers");
  for (const char *headers : {R"({"X-Api-Key": "${header.key}"})", R"({"Cookie": ""})", R"({"Idempotency-Key": "a"})",
                              R"({"X-Tokens": "a"})", R"({"X-Key": "a"})", R"({"Author": "a"})"})
    EXPECT_NO_THROW(parse_webhook(with("headers", headers), nullptr)) << headers;
}

TEST(WebhookOptions, WhatGoesIllTogetherIsRefused) {
  auto refuses = [](Options server, const char *subject) {
    server["url"] = "https://example.com/";
    BadInput error = refused(server);
    EXPECT_EQ(error.subject, subject);
    EXPECT_FALSE(error.detail.empty());
  };
  refuses({{"source", "/shop"}}, "source");
  refuses({{"source", "/shop"}, {"format", "raw"}}, "source");
  refuses({{"body", "{}"}, {"format", "cloudevents"}}, "body");
  refuses({{"body", "{}"}, {"format", "cloudevents-structured"}}, "body");
  refuses({{"headers", R"({"Content-Type": "a/b"})"}, {"format", "cloudevents"}}, "headers");
  refuses({{"headers", R"({"CE-tenant": "a"})"}, {"format", "cloudevents"}}, "headers");
  refuses({{"headers", R"({"idempotency-key": "a"})"}, {"idempotency_key", "true"}}, "headers");
  const Options batch = {{"batch", "100"}};
  auto with_batch = [&](Options more) {
    more.insert(batch.begin(), batch.end());
    return more;
  };
  refuses(with_batch({{"format", "cloudevents"}}), "batch");
  refuses(with_batch({{"format", "raw"}}), "batch");
  refuses(with_batch({{"body", ""}}), "batch");
  refuses(with_batch({{"headers", R"({"X-Type": "${event_type}"})"}}), "batch");
  refuses(with_batch({{"idempotency_key", "true"}}), "idempotency_key");
  refuses(with_batch({{"forward_headers", "traceparent"}}), "forward_headers");
  EXPECT_EQ(refused({{"url", "https://example.com/${aggregate_id}"}, {"batch", "100"}}).subject, "batch");
  EXPECT_NO_THROW(webhook().parse(
      with_batch({{"url", "https://example.com/"}, {"format", "raw"}, {"body", "${payload}"}}), nullptr));
  for (Options server : {Options{{"headers", R"({"Content-Type": "application/merge-patch+json", "ce-x": "1"})"}},
                         Options{{"format", "cloudevents"}, {"source", "urn:shop"}},
                         Options{{"format", "raw"}, {"body", "{}"}, {"method", "put"}}}) {
    server["url"] = "https://example.com/";
    EXPECT_NO_THROW(webhook().parse(server, nullptr));
  }
}

TEST(WebhookOptions, SecretsThatGoIllTogetherAreRefused) {
  const std::string secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", old = "whsec_" + std::string(43, 'A');
  Authority own("127.0.0.1"), another("127.0.0.1");
  auto refuses = [](const Options &mapping, const char *subject, ob_error_kind kind = OB_BAD_VALUE) {
    BadInput error = bad_input_of([&] { webhook().check_mapping(mapping); });
    EXPECT_EQ(error.kind, kind) << error.what();
    EXPECT_EQ(error.subject, subject) << error.what();
    EXPECT_FALSE(error.detail.empty()) << error.what();
    for (auto &[name, value] : mapping)
      EXPECT_EQ((error.what() + error.detail + error.hint).find(value), std::string::npos) << name;
  };
  refuses({{"secret", secret + std::string(",") + secret}}, "secret");
  refuses({{"password", "hunter22"}}, "user", OB_MISSING_OPTION);
  refuses({{"user", "me-myself"}, {"token", "t0ken-t0ken"}}, "token");
  refuses({{"token", "t0ken-t0ken"}, {"headers", R"({"authorization": "Token x"})"}}, "headers");
  refuses({{"ssl_key_pem", own.key_pem()}}, "ssl_certificate_pem", OB_MISSING_OPTION);
  refuses({{"ssl_certificate_pem", own.pem()}}, "ssl_key_pem", OB_MISSING_OPTION);
  refuses({{"ssl_certificate_pem", own.pem()}, {"ssl_key_pem", another.key_pem()}}, "ssl_key_pem");
  refuses({{"ssl_certificate_pem", own.pem()}, {"ssl_key_pem", own.key_pem("open-it")}}, "ssl_key_pem");
  for (const Options &mapping :
       {Options{{"secret", secret + std::string(", ") + old}, {"user", "me"}, {"password", ""}},
        Options{{"user", "me"}}, Options{{"headers", R"({"Authorization": "Token x", "X-Key": "${y}"})"}},
        Options{{"ssl_certificate_pem", own.pem()}, {"ssl_key_pem", own.key_pem()}}})
    EXPECT_NO_THROW(webhook().check_mapping(mapping));

  Options mapping = {
      {"url", "http://example.com/"}, {"ssl_certificate_pem", own.pem()}, {"ssl_key_pem", own.key_pem()}};
  EXPECT_EQ(refused({{"allow_http", "true"}}, &mapping).subject, "ssl_certificate_pem");
  mapping = {{"headers", R"({"x-key": "s3cr3t"})"}};
  EXPECT_EQ(refused({{"url", "https://example.com/"}, {"headers", R"({"X-Key": "1"})"}}, &mapping).subject,
            "headers");
}

TEST(WebhookOptions, UrlsAreHttpsUnlessSaidOtherwiseAndNeverShown) {
  for (const char *url : {"", "example.com/hook", "ftp://example.com/", "file:///etc/passwd", "https://",
                          "https://exa mple.com/", "https://user:s3cr3t@example.com/", "https://s3cr3t@example.com/",
                          "https://example.com/#s3cr3t", "http://example.com/s3cr3t",
                          "https://example.com/\r\ns3cr3t", "gopher://127.0.0.1/", "https://example.com:99999/"}) {
    BadInput error = refused({{"url", url}});
    EXPECT_EQ(error.subject, "url") << url;
    EXPECT_EQ((error.what() + error.detail + error.hint).find("s3cr3t"), std::string::npos);
  }
  EXPECT_NO_THROW(webhook().parse({{"url", "http://example.com/"}, {"allow_http", "on"}}, nullptr));
  EXPECT_NO_THROW(webhook().parse({{"url", "HTTPS://example.com:8443/a?b=c"}}, nullptr));
}

/* The target of a proxy request is checked as libcurl parses it, in any spelling; so is the proxy's own host. */
TEST(WebhookOptions, AProxyIsNotAskedForInnerAddresses) {
  for (const char *host :
       {"127.0.0.1", "0x7f.1", "2130706433", "017700000001", "127.1", "127.0.0.1.", "%31%32%37.1", "[::1]",
        "[::ffff:127.0.0.1]", "[fe80::1%25eth0]", "LOCALHOST", "a.localhost.", "%6cocalhost"}) {
    Options server = {{"url", std::string("https://") + host + ":8443/x"}, {"proxy", "http://proxy.example:3128"}};
    auto config = std::dynamic_pointer_cast<const WebhookConfig>(webhook().parse(server, nullptr));
    EXPECT_TRUE(config->proxy.refused_target.has_value()) << host;
  }
  for (const char *proxy : {"http:///proxy.example:3128", "http:/proxy.example:3128", "http://@proxy.example:3128",
                            "http:///127.0.0.1:3128",
                            "http://b\xc3\xbc"
                            "cher.example:3128"})
    EXPECT_EQ(refused(with("proxy", proxy)).subject, "proxy") << proxy;
}

TEST(WebhookOptions, TheUrlMayStandInTheUserMapping) {
  EXPECT_NO_THROW(webhook().parse({}, nullptr));  // it may be set later
  Options none, mapping = {{"url", "https://example.com/token"}};
  EXPECT_EQ(refused({}, &none).kind, OB_MISSING_OPTION);
  auto config =
      std::dynamic_pointer_cast<const WebhookConfig>(webhook().parse({{"url", "https://a.example/"}}, &mapping));
  EXPECT_EQ(config->target.text(), "https://example.com/token");
  mapping["url"] = "http://example.com/token";
  EXPECT_EQ(refused({}, &mapping).subject, "url");
}

TEST(WebhookOptions, SecretsAreCheckedAndNeverShown) {
  const std::string key = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
  const std::map<std::string, std::vector<std::string>> bad = {
      {"secret", {"", "whsec_c2hvcnQ=", "whsec_%%%", key + ", whsec_c2hvcnQ=", key + "," + key, key + ", , " + key}},
      {"user", {"", "me:myself", "me\nmyself"}},
      {"password", {"passwd\ns3cr3t"}},
      {"ssl_certificate_pem", {"no-PEM-s3cr3t"}},
      {"ssl_key_pem", {"no-PEM-s3cr3t"}},
      {"headers", {"s3cr3t-s3cr3t", R"({"X": "a\nb"})"}},
      {"token", {"", "two words", "line\nbreak", "caf\xc3\xa9"}},
  };
  for (auto &[name, values] : bad)
    for (const std::string &value : values) {
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

TEST(WebhookOptions, EventsThatTheOptionsCannotSendAreRefused) {
  ob_set_origin("shop", 3);
  auto refusal = [](Options server, TestEvent event) -> std::string {
    server.insert({"url", "https://example.com/"});
    auto config = webhook().parse(server, nullptr);
    BadInput error = bad_input_of([&] { config->check_event(event.get()); });
    EXPECT_EQ(error.detail.empty(), error.kind == OB_OK) << error.what();
    return error.kind == OB_OK ? "" : error.subject + ": " + error.what();
  };
  TestEvent odd(1), good(2);
  odd.event.dedup_key = text("caf\xc3\xa9");
  odd.event.aggregate_id = text("a\x01");
  odd.headers = {{"ce_a b", "x"}};
  odd.headers[0].first = "ce_A";
  good.event.dedup_key = text("a \"quoted\\ key");
  good.event.aggregate_id = text("42");
  good.headers = {{"tenant", "acme"}};
  Options url = {{"url", "https://example.com/${header.tenant}"}}, key = {{"idempotency_key", "true"}},
          headers = {{"headers", R"({"X-Order": "${aggregate_id}"})"}};
  EXPECT_EQ(refusal(url, odd), "url: event has no value for ${header.tenant}");
  EXPECT_EQ(refusal(key, odd), "dedup_key: dedup_key cannot be sent as Idempotency-Key");
  EXPECT_EQ(refusal(headers, odd), "headers: value of header \"X-Order\" contains a control character");
  EXPECT_EQ(refusal({{"format", "cloudevents"}}, odd).substr(0, 12), "aggregate_id");
  odd.event.aggregate_id = text("42");
  EXPECT_EQ(refusal({{"format", "cloudevents"}}, odd), "headers: header \"ce_A\" is no legal CloudEvents attribute");
  EXPECT_EQ(refusal({{"format", "cloudevents-structured"}, {"source", "/${header.tenant}"}}, TestEvent(1)),
            "source: event has no value for ${header.tenant}");
  for (const Options &server : {url, key, headers, Options{{"format", "cloudevents"}}, Options{{"format", "raw"}},
                                Options{{"body", "{\"a\": ${header.x}}"}}})
    EXPECT_EQ(refusal(server, good), "");
}

TEST(WebhookOptions, TheBoundsOfABatch) {
  const Batch batch = Batch::parse("batch", " 100 , 256kB,20ms");
  EXPECT_EQ(batch.events, 100u);
  EXPECT_EQ(batch.bytes, 256u * 1024);
  EXPECT_EQ(batch.wait.count(), 20);
  EXPECT_EQ(Batch::parse("batch", "1").bytes, 1u << 20);
  EXPECT_EQ(Batch::parse("batch", "1").wait.count(), 0);
}

TEST(WebhookOptions, ARequestOfSeveralEventsIsNamedByThem) {
  auto message = [](const char *id, const char *body) {
    HttpMessage made;
    made.parts = {id};
    made.body = body;
    return made;
  };
  const std::vector<HttpMessage> one = {message("a", "1")}, two = {message("a", "1"), message("b", "{\n}")};
  EXPECT_EQ(batch_id(two), batch_id(two));
  EXPECT_NE(batch_id(one), batch_id(two));
  EXPECT_EQ(batch_id(one).size(), 36u);
  EXPECT_EQ(batch_id(one)[14], '8');
  EXPECT_EQ(batch_body(BatchFormat::Array, one), "[1]");
  EXPECT_EQ(batch_body(BatchFormat::Array, two), "[1,{\n}]");
  EXPECT_EQ(batch_body(BatchFormat::Lines, two), "1\n{ }\n");
}
