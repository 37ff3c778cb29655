/* Previews: what they show besides what is sent. */
#include "webhook_fixture.h"

#include <algorithm>
#include <set>
#include <span>

#include "door.h"

using namespace outbox;
using Peer = FaultServer::Peer;

namespace {

/* A checker and a preview of one event, through the delivery API. */
class Previewed {
public:
  Previewed(const char *kind, const door::OptionList &options, const ob_event &event)
      : checker_(border::checker_open(kind, options, nullptr, &error)) {
    EXPECT_NE(checker_, nullptr) << error.message;
    preview_ = checker_->kind->preview_open(checker_, &event, 1614265330, &error);
  }
  ~Previewed() {
    ob_release(preview_);
    ob_release(checker_);
  }
  Previewed(const Previewed &) = delete;
  Previewed &operator=(const Previewed &) = delete;

  /* One line per part: name, then =bytes, ~text, or nothing for null. */
  std::vector<std::string> lines() const {
    std::vector<std::string> all;
    for (const ob_part &part : std::span(preview_ ? preview_->parts : nullptr, preview_ ? preview_->n : 0)) {
      std::string line = part.part;
      if (part.name.data)
        line.append(" ").append(view(part.name));
      EXPECT_TRUE(!part.bytes.data || !part.text.data) << line;
      if (part.bytes.data)
        line.append("=").append(view(part.bytes));
      else if (part.text.data)
        line.append("~").append(view(part.text));
      all.push_back(line);
    }
    return all;
  }

  ob_error error{};

private:
  ob_checker *checker_;
  ob_preview *preview_ = nullptr;
};

using Lines = std::vector<std::string>;
const door::OptionList broker = {{"bootstrap_servers", "localhost:1"}};

TEST(Preview, TellsEmptyFromNullAndBytesFromText) {
  door::Event event;
  Previewed shown("memory", {{"capacity", "7"}}, event.raw());
  EXPECT_EQ(shown.lines(), (Lines{"type=order.created", "header empty=", "key", "number~7"}));
  EXPECT_EQ(shown.error.kind, OB_OK);
}

TEST(Preview, RefusesWhatTheSinkRefuses) {
  door::Event event;
  event.event_type = "forbidden";
  Previewed shown("memory", {}, event.raw());
  EXPECT_EQ(shown.lines(), Lines());
  EXPECT_EQ(shown.error.kind, OB_BAD_VALUE);
  EXPECT_STREQ(shown.error.message, "event type is forbidden");
}

TEST(Preview, OfARecord) {
  door::Event event, tombstone, keyless, later;
  event.headers = {{"traceparent", "00-1"}, {"a", ""}};
  event.payload = std::string("\0\xff", 2);
  EXPECT_EQ(Previewed("kafka", broker, event.raw()).lines(),
            (Lines{"topic=outbox.event.Order", "timestamp~(the time of each attempt)", "key=7",
                   std::string("header id=") + door::event_id, "header eventType=order.created",
                   "header traceparent=00-1", "header a=", std::string("value=\0\xff", 8)}));
  tombstone.has_payload = false;
  EXPECT_EQ(Previewed("kafka", broker, tombstone.raw()).lines().back(), "value");
  keyless.has_key = false;
  EXPECT_EQ(Previewed("kafka", broker, keyless.raw()).lines()[2], "key");
  ob_event tomorrow = later.raw();
  tomorrow.created_at_us = (time(nullptr) + 86400) * INT64_C(1000000);
  EXPECT_EQ(Previewed("kafka", broker, tomorrow).lines()[1], "timestamp~(the time of each attempt)");
}

TEST(Preview, OfARequestIsWhatThePeerSees) {
  Shared<HttpRequest> last;
  FaultServer peer([&](const HttpRequest &request, Peer &to) {
    last.set(request);
    return to.answer(204);
  });
  Options server =
      WebhookHarness::local(peer, {{"headers", R"({"X-Tenant": "42", "X-Blank": " \t"})"}, {"forward_headers", "*"}});
  TestEvent event(7, 1, R"({"amount": 1.00})");
  event.headers = {{"traceparent", "00-ab"}, {"Webhook-Id", "forged"}, {"x-tenant", "forged"},
                   {"Host", "forged"},       {"x-utf8", "Zo\xc3\xab"}, {"x-empty", ""}};
  Preview parts = SinkKind::find("webhook")->parse(server, nullptr)->preview(event.get(), 0);

  WebhookHarness crm(server, {{"secret", "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"}, {"token", "t0ken"}});
  EXPECT_EQ(crm.send(std::move(event)).outcome, Outcome::Sent);
  HttpRequest seen = last.get();

  std::set<std::string> of_the_attempt;
  for (const PreviewPart &part : parts) {
    if (part.part == std::string("method")) {
      EXPECT_EQ(*part.bytes + " /hook HTTP/1.1", seen.line);
    } else if (part.part == std::string("url")) {
      EXPECT_EQ(*part.bytes, peer.url());
    } else if (part.part == std::string("body")) {
      EXPECT_EQ(*part.bytes, seen.body);
    } else if (part.part == std::string("header")) {
      std::string name = part.name;
      std::transform(name.begin(), name.end(), name.begin(), ::tolower);
      ASSERT_EQ(seen.headers.count(name), 1u) << part.name << " was not sent";
      if (part.bytes)
        EXPECT_EQ(*part.bytes, seen.headers[name]) << part.name;
      else
        of_the_attempt.insert(name);
      seen.headers.erase(name);
    }
  }
  EXPECT_EQ(seen.headers, (std::map<std::string, std::string>())) << "sent, and not shown";
  EXPECT_EQ(of_the_attempt, (std::set<std::string>{"authorization", "webhook-signature", "webhook-timestamp"}));
}

TEST(Preview, ASecretUrlIsNotShown) {
  TestEvent event(7);
  Preview parts = SinkKind::find("webhook")->parse({}, nullptr)->preview(event.get(), 0);
  ASSERT_STREQ(parts[1].part, "url");
  EXPECT_FALSE(parts[1].bytes);
  EXPECT_EQ(parts[1].text, "(in the user mapping)");
}

}  // namespace
