/* CloudEvents 1.0, protocol bindings for Kafka and HTTP: test vectors. SDKs of two languages read real records and
 * requests in test/kafka and test/webhook. */
#include "delivery/formats/cloudevents.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "delivery/options/options.h"
#include "bad_input.h"
#include "door.h"

using namespace outbox;

namespace {

class CloudEventsTest : public testing::Test {
protected:
  CloudEventsTest() { ob_set_origin("shop", 3); }

  std::map<std::string, std::string> headers(CloudEvents::Mode mode) {
    CloudEvents format(mode, Template::parse("source", source), {}, binding);
    record.begin();
    format.write(event.raw(), record);
    std::map<std::string, std::string> all;
    for (const ob_header &header : record.headers)
      EXPECT_TRUE(all.emplace(std::string(header.name.data, header.name.len),
                              std::string(header.value.data, header.value.len))
                      .second)
          << "twice: " << std::string(header.name.data, header.name.len);
    return all;
  }
  nlohmann::json body() {
    auto all = headers(CloudEvents::Mode::Structured);
    content_type = all[binding == CloudEvents::Binding::Http ? "Content-Type" : "content-type"];
    return nlohmann::json::parse(record.value.data, record.value.data + record.value.len);
  }
  std::string check() {
    CloudEvents format(CloudEvents::Mode::Binary, Template::parse("source", source), {}, binding);
    return bad_input_of([&] { format.check(event.raw()); }).what();
  }

  CloudEvents::Binding binding = CloudEvents::Binding::Kafka;
  std::string source = "/outbox/${database}/${aggregate_type}", content_type;
  door::Event event;
  Record record;
};

const char *parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

TEST_F(CloudEventsTest, BinaryPutsAttributesIntoHeaders) {
  event.headers = {{"traceparent", parent}, {"tracestate", "a=1"}, {"tenant", "acme"}, {"ce_dataschema", "urn:x"}};
  EXPECT_EQ(headers(CloudEvents::Mode::Binary), (std::map<std::string, std::string>{
                                                    {"ce_specversion", "1.0"},
                                                    {"ce_id", door::event_id},
                                                    {"ce_source", "/outbox/shop/Order"},
                                                    {"ce_type", "order.created"},
                                                    {"ce_subject", "7"},
                                                    {"ce_time", "2021-02-25T15:02:10.000123Z"},
                                                    {"ce_partitionkey", "7"},
                                                    {"ce_sequence", "0000000000000000001"},
                                                    {"ce_traceparent", parent},
                                                    {"ce_tracestate", "a=1"},
                                                    {"ce_dataschema", "urn:x"},
                                                    {"content-type", "application/json"},
                                                    {"traceparent", parent},
                                                    {"tracestate", "a=1"},
                                                    {"tenant", "acme"},
                                                }));
  EXPECT_EQ(std::string(record.value.data, record.value.len), event.payload);
}

TEST_F(CloudEventsTest, OneAttributeIsGivenOnce) {
  binding = CloudEvents::Binding::Http;
  for (auto &[one, other] : std::vector<std::pair<std::string, std::string>>{
           {"ce-tenant", "ce_tenant"}, {"CE-tenant", "ce_tenant"}, {"Ce_tenant", "cE_tenant"}}) {
    event.headers = {{other, "a"}, {"plain", "x"}, {one, "b"}};
    EXPECT_EQ(check(), "headers \"" + one + "\" and \"" + other + "\" are one attribute of a CloudEvent");
  }
  event.headers = {{"ce-tenant", "a"}, {"ce_tenant2", "b"}, {"tenant", "c"}};
  EXPECT_EQ(check(), "");
  binding = CloudEvents::Binding::Kafka;  // in that binding the other one is a plain header
  event.headers = {{"ce-tenant", "a"}, {"ce_tenant", "b"}};
  EXPECT_EQ(check(), "");
  EXPECT_EQ(headers(CloudEvents::Mode::Binary)["ce_tenant"], "b");
}

TEST_F(CloudEventsTest, StructuredPutsAllIntoTheValue) {
  event.headers = {{"traceparent", parent}, {"tenant", "acme"}, {"ce_region", "eu"}};
  event.payload = R"({"total": 12345678901234567890.10})";
  event.has_seq = true;
  event.seq = 42;
  nlohmann::json expected = {{"specversion", "1.0"},
                             {"id", door::event_id},
                             {"source", "/outbox/shop/Order"},
                             {"type", "order.created"},
                             {"subject", "7"},
                             {"time", "2021-02-25T15:02:10.000123Z"},
                             {"partitionkey", "7"},
                             {"sequence", "0000000000000000042"},
                             {"traceparent", parent},
                             {"region", "eu"},
                             {"datacontenttype", "application/json"},
                             {"data", {{"total", 12345678901234567890.10}}}};
  EXPECT_EQ(body(), expected);
  EXPECT_EQ(content_type, "application/cloudevents+json; charset=UTF-8");
  EXPECT_NE(std::string(record.value.data, record.value.len).find(event.payload), std::string::npos) << "lossless";
  EXPECT_EQ(headers(CloudEvents::Mode::Structured).count("ce_region"), 0u);
  EXPECT_EQ(headers(CloudEvents::Mode::Structured)["tenant"], "acme");
}

TEST_F(CloudEventsTest, BytesAreBytes) {
  event.payload = std::string("\0\xff", 2);
  event.payload_is_bytes = true;
  EXPECT_EQ(headers(CloudEvents::Mode::Binary)["content-type"], "application/octet-stream");
  EXPECT_EQ(body()["data_base64"], "AP8=");
  event.content_type = "application/avro";
  EXPECT_EQ(headers(CloudEvents::Mode::Binary)["content-type"], "application/avro");
  EXPECT_EQ(body()["datacontenttype"], "application/avro");
  EXPECT_FALSE(body().contains("data"));
}

TEST_F(CloudEventsTest, NoDataIsNoValueAndNoContentType) {
  event.has_payload = false;
  EXPECT_EQ(headers(CloudEvents::Mode::Binary).count("content-type"), 0u);
  EXPECT_EQ(record.value.data, nullptr);
  nlohmann::json json = body();
  for (const char *name : {"data", "data_base64", "datacontenttype"})
    EXPECT_FALSE(json.contains(name)) << name;
  EXPECT_EQ(json["id"], door::event_id);
}

TEST_F(CloudEventsTest, WhatIsMissingOrEmptyIsLeftOut) {
  event.has_key = false;
  event.aggregate_id = "";
  event.created_at_us = INT64_MAX; /* infinity */
  event.has_seq = true;
  event.seq = -1;
  auto all = headers(CloudEvents::Mode::Binary);
  for (const char *name : {"ce_subject", "ce_partitionkey", "ce_time", "ce_sequence", "ce_traceparent"})
    EXPECT_EQ(all.count(name), 0u) << name;
}

TEST_F(CloudEventsTest, AnInvalidTraceparentIsNoAttribute) {
  for (const char *bad : {"", "00-1", "ff-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
                          "00-00000000000000000000000000000000-b7ad6b7169203331-01",
                          "00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01",
                          "00-0AF7651916CD43DD8448EB211C80319C-b7ad6b7169203331-01",
                          "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01-x"}) {
    event.headers = {{"tracestate", "a=1"}, {"traceparent", bad}};
    auto all = headers(CloudEvents::Mode::Binary);
    EXPECT_EQ(all.count("ce_traceparent") + all.count("ce_tracestate"), 0u) << bad;
    EXPECT_EQ(all["traceparent"], bad) << "the application's header is sent unchanged";
  }
  event.headers = {{"traceparent", "01-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01-more"}};
  EXPECT_EQ(headers(CloudEvents::Mode::Binary).count("ce_traceparent"), 1u) << "a version to come";
}

TEST_F(CloudEventsTest, TheSourceIsAUriReference) {
  event.aggregate_type = "Größe ?#%";
  EXPECT_EQ(headers(CloudEvents::Mode::Binary)["ce_source"], "/outbox/shop/Gr%C3%B6%C3%9Fe%20%3F%23%25");
  source = "urn:${header.tenant}";
  EXPECT_THROW(headers(CloudEvents::Mode::Binary), BadInput);
  event.headers = {{"tenant", "a:b"}};
  EXPECT_EQ(headers(CloudEvents::Mode::Binary)["ce_source"], "urn:a:b");
}

TEST_F(CloudEventsTest, WhatNoAttributeCanHoldIsRefused) {
  EXPECT_EQ(check(), "");
  event.aggregate_id = "a\tb";
  EXPECT_EQ(check(), "aggregate_id contains a control character");
  event.aggregate_id = "a\u0085b";
  EXPECT_EQ(check(), "aggregate_id contains a control character");
  event.aggregate_id = "aéb";
  event.headers = {{"ce_Tenant", "a"}};
  EXPECT_EQ(check(), "header \"ce_Tenant\" is no legal CloudEvents attribute");
  event.headers = {{"ce_id", "a"}};
  EXPECT_EQ(check(), "header \"ce_id\" is set by the sink");
  event.headers = {{"ce_tenant", "a"}};
  EXPECT_EQ(check(), "");
  event.binary_headers = true;
  EXPECT_EQ(check(), "header \"ce_tenant\" is not text");
}

TEST_F(CloudEventsTest, HttpPercentEncodesAttributes) {
  binding = CloudEvents::Binding::Http;
  event.aggregate_type = "\xc3\x84";
  event.aggregate_id = "a \"b\" 100% \xf0\x9f\x98\x80~!";
  event.headers = {{"traceparent", parent}, {"tenant", "acme"}, {"ce_region", "Z\xc3\xbcrich"}, {"CE-zone", "1 2"}};
  EXPECT_EQ(headers(CloudEvents::Mode::Binary), (std::map<std::string, std::string>{
                                                    {"Content-Type", "application/json"},
                                                    {"ce-specversion", "1.0"},
                                                    {"ce-id", door::event_id},
                                                    {"ce-source", "/outbox/shop/%25C3%2584"},
                                                    {"ce-type", "order.created"},
                                                    {"ce-subject", "a%20%22b%22%20100%25%20%F0%9F%98%80~!"},
                                                    {"ce-time", "2021-02-25T15:02:10.000123Z"},
                                                    {"ce-partitionkey", "7"},
                                                    {"ce-sequence", "0000000000000000001"},
                                                    {"ce-traceparent", parent},
                                                    {"ce-region", "Z%C3%BCrich"},
                                                    {"ce-zone", "1%202"},
                                                }));
  EXPECT_EQ(std::string(record.value.data, record.value.len), event.payload);
  nlohmann::json structured = body();
  EXPECT_EQ(content_type, "application/cloudevents+json; charset=utf-8");
  EXPECT_EQ(record.headers.size(), 1u);
  EXPECT_EQ(structured["subject"], event.aggregate_id);
  EXPECT_EQ(structured["zone"], "1 2");
  event.has_payload = false;
  EXPECT_EQ(headers(CloudEvents::Mode::Binary).count("Content-Type"), 0u);
  EXPECT_EQ(record.value.data, nullptr);
}

TEST_F(CloudEventsTest, HttpTakesAttributesInEitherSpellingAndLetsNoneBeForged) {
  binding = CloudEvents::Binding::Http;
  for (const char *name : {"ce-id", "Ce-Id", "ce_id", "ce-datacontenttype", "ce-", "ce-a.b"}) {
    event.headers = {{name, "x"}};
    EXPECT_NE(check(), "") << name;
  }
  for (const char *name : {"ce-tenant", "CE_tenant", "center", "ce"}) {
    event.headers = {{name, "x"}};
    EXPECT_EQ(check(), "") << name;
  }
}

}  // namespace
