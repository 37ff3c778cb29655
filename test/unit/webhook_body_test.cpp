/* Option body: JSON with variables, inside and outside of quotes. */
#include "sinks/webhook/webhook_body.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "delivery/options/options.h"
#include "bad_input.h"
#include "door.h"

using namespace outbox;
using nlohmann::json;

namespace {

std::string rendered(const std::string &text, const ob_event &event) {
  std::string body;
  BodyTemplate::parse("body", text).render(event, body);
  return body;
}

BadInput refused(const std::string &text) {
  BadInput bad = bad_input_of([&] { return BodyTemplate::parse("body", text); });
  EXPECT_EQ(bad.subject, "body") << text;
  EXPECT_FALSE(bad.hint.empty()) << text;
  return bad;
}

}  // namespace

TEST(WebhookBody, VariablesAreValuesOutsideQuotesAndTextWithin) {
  door::Event event;
  event.aggregate_id = "4\"2";
  event.payload = R"({"total": 12345678901234567890.10})";
  event.has_seq = true;
  event.seq = 7;
  event.headers = {{"tenant", "acme \xf0\x9f\x98\x80"}, {"a\"b", "c\\d"}};
  EXPECT_EQ(rendered(R"({"id": ${id}, "type": ${event_type}, "seq": ${seq}, "payload": ${payload}})", event.raw()),
            std::string("{\"id\": \"") + door::event_id +
                R"(", "type": "order.created", "seq": 7, "payload": {"total": 12345678901234567890.10}})");
  EXPECT_EQ(rendered(R"(["order-${aggregate_id}/${seq}", "\"${event_type}\\", "${payload}"])", event.raw()),
            R"(["order-4\"2/7", "\"order.created\\", "{\"total\": 12345678901234567890.10}"])");
  EXPECT_EQ(rendered("${payload}", event.raw()), event.payload);
  EXPECT_EQ(rendered(R"({"${event_type}": ${headers}})", event.raw()),
            "{\"order.created\": {\"tenant\":\"acme \xf0\x9f\x98\x80\",\"a\\\"b\":\"c\\\\d\"}}");
  EXPECT_EQ(rendered(R"({"price": "$5 {x} $ { }", "t": ${header.tenant}})", event.raw()),
            "{\"price\": \"$5 {x} $ { }\", \"t\": \"acme \xf0\x9f\x98\x80\"}");
}

TEST(WebhookBody, WhatIsMissingIsNull) {
  door::Event event;
  event.aggregate_id = "";
  event.has_payload = false;
  EXPECT_EQ(
      rendered(
          R"([${payload}, ${seq}, ${header.x}, ${dedup_key}, ${aggregate_id}, "a${payload}${header.x}${seq}b", ${headers}])",
          event.raw()),
      R"([null, null, null, null, "", "ab", {}])");
}

TEST(WebhookBody, BytesAreBase64) {
  door::Event event;
  event.payload = std::string("\0\xff", 2);
  event.payload_is_bytes = true;
  ob_event raw = event.raw();
  ob_header header{{"sig", 3}, {"\xff\"", 2}, true};
  raw.headers = &header;
  raw.n_headers = 1;
  EXPECT_EQ(rendered(R"([${payload}, "x:${payload}", ${header.sig}, "${header.sig}", ${headers}])", raw),
            R"(["AP8=", "x:AP8=", "/yI=", "/yI=", {"sig":{"base64":"/yI="}}])");
}

TEST(WebhookBody, IsAlwaysJson) {
  door::Event event;
  event.event_type = "a\"b\\c\x01\xc3\xa9\xff\xe2\x80\xa8";
  event.headers = {{"x", "\r\n\t\x7f"}};
  json parsed = json::parse(rendered(R"({"v": ${event_type}, "t": "${event_type}${header.x}"})", event.raw()));
  EXPECT_EQ(parsed["v"], "a\"b\\c\x01\xc3\xa9\xef\xbf\xbd\xe2\x80\xa8");
  EXPECT_EQ(parsed["t"], "a\"b\\c\x01\xc3\xa9\xef\xbf\xbd\xe2\x80\xa8\r\n\t\x7f");
}

TEST(WebhookBody, AnEmptyOneIsNone) {
  EXPECT_TRUE(BodyTemplate::parse("body", "").empty());
  EXPECT_FALSE(BodyTemplate::parse("body", "{}").empty());
  EXPECT_FALSE(BodyTemplate::parse("body", "[1e400]").empty());
}

TEST(WebhookBody, WhatIsWrongIsShownWhereItIs) {
  for (auto &[text, message, detail] : std::vector<std::array<std::string, 3>>{
           {"{", "option \"body\" is not a JSON template", "It ends too early, after \"{\"."},
           {R"({"a": ${id} "b": 1})", "option \"body\" is not a JSON template",
            R"(It is no JSON at character 15, after "{"a": ${id} "b".)"},
           {R"({"order": order-${id}})", "option \"body\" is not a JSON template",
            R"(It is no JSON at character 11, after "{"order": ".)"},
           {R"({${id}: 1})", "option \"body\" is not a JSON template", "It is no JSON at character 2, after \"{\"."},
           {"{\"a\": '${id}'}", "option \"body\" is not a JSON template",
            "It is no JSON at character 7, after \"{\"a\": \"."},
           {"id=${id}", "option \"body\" is not a JSON template", "It is no JSON at character 1, after \"\"."},
           {" ", "option \"body\" is not a JSON template", "It ends too early, after \" \"."},
           {"{\"a\": \"${id\"", "template of option \"body\" has a variable that does not end",
            "There is no \"}\" after \"${id\"\"."},
           {"{\"a\": ${paylod}}", "unknown variable \"paylod\" in the template of option \"body\"", ""},
           {"{\"a\": ${}}", "unknown variable \"\" in the template of option \"body\"", ""}}) {
    BadInput bad = refused(text);
    EXPECT_EQ(bad.what(), message) << text;
    EXPECT_EQ(bad.detail, detail) << text;
  }
  EXPECT_NE(
      refused("{\"a\": ${paylod}}")
          .hint.find("Perhaps you meant ${payload}. Known variables are ${payload}, ${headers}, ${aggregate_type}"),
      std::string::npos);
}
