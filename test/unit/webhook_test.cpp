/* Delivery to a real socket that responds well, slowly, wrongly or not at all. */
#include "webhook_fixture.h"
#include "patience.h"

#include <algorithm>
#include <set>

#include <nlohmann/json.hpp>

#include "delivery/formats/standard_webhooks.h"

using namespace outbox;
using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;
using Peer = FaultServer::Peer;

namespace {

constexpr const char *secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";

int number_of(const HttpRequest &request, const char *field) {
  return nlohmann::json::parse(request.body)["data"][field].get<int>();
}

}  // namespace

TEST(Webhook, PostsASignedStandardWebhook) {
  Shared<HttpRequest> last;
  FaultServer peer([&](const HttpRequest &request, Peer &to) {
    last.set(request);
    return to.answer(204);
  });
  WebhookHarness crm(WebhookHarness::local(peer, {{"headers", R"({"X-Tenant": "42", "X-Empty": "", "X-N": 7})"},
                                                  {"forward_headers", "*"}}),
                     {{"secret", secret}, {"token", "t0ken"}});
  TestEvent event(7, 1, R"({"amount": 1.00, "id": 12345678901234567890123})");
  event.headers = {{"traceparent", "00-ab"}, {"Webhook-Id", "forged"}, {"x-tenant", "forged"}, {"Host", "forged"}};
  time_t before = time(nullptr);
  EXPECT_EQ(crm.send(std::move(event)).outcome, Outcome::Sent);

  HttpRequest seen = last.get();
  EXPECT_EQ(seen.line, "POST /hook HTTP/1.1");
  EXPECT_EQ(seen.body, "{\"id\":\"07000000-0000-0000-0000-000000000000\",\"type\":\"order.created\","
                       "\"timestamp\":\"2024-05-01T12:00:00.007Z\","
                       "\"data\":{\"amount\": 1.00, \"id\": 12345678901234567890123}}");
  EXPECT_EQ(seen.headers["webhook-id"], "07000000-0000-0000-0000-000000000000");
  int64_t stamp = std::stoll(seen.headers["webhook-timestamp"]);
  EXPECT_GE(stamp, before);
  EXPECT_LE(stamp, time(nullptr));
  EXPECT_EQ(
      seen.headers["webhook-signature"],
      standard_webhooks::SigningKey::parse("secret", secret).sign(seen.headers["webhook-id"], stamp, seen.body));
  EXPECT_EQ(seen.headers["content-type"], "application/json");
  EXPECT_EQ(seen.headers["user-agent"], "outbox");
  EXPECT_EQ(seen.headers["authorization"], "Bearer t0ken");
  EXPECT_EQ(seen.headers["x-tenant"], "42");
  EXPECT_EQ(seen.headers["x-n"], "7");
  EXPECT_EQ(seen.headers.count("x-empty"), 1u);
  EXPECT_EQ(seen.headers["traceparent"], "00-ab");
  EXPECT_EQ(seen.headers["host"], "127.0.0.1:" + std::to_string(peer.port()));
  EXPECT_EQ(seen.headers.count("accept-encoding"), 0u);
  EXPECT_EQ(seen.headers.count("expect"), 0u);
}

TEST(Webhook, BytesAreTheBodyAndUnsignedWithoutASecret) {
  Shared<HttpRequest> last;
  FaultServer peer([&](const HttpRequest &request, Peer &to) {
    last.set(request);
    return to.answer(200);
  });
  WebhookHarness crm(WebhookHarness::local(peer));
  TestEvent event(1, 1, std::string("\0\xff{\r\n", 5) + std::string(3'000'000, 'x'));
  event.event.payload_is_bytes = true;
  event.event.content_type = text("application/avro");
  std::string payload = event.payload;
  EXPECT_EQ(crm.send(std::move(event)).outcome, Outcome::Sent);
  HttpRequest seen = last.get();
  EXPECT_EQ(seen.body, payload);
  EXPECT_EQ(seen.headers["content-type"], "application/avro");
  EXPECT_EQ(seen.headers.count("webhook-signature"), 0u);
}

TEST(Webhook, KeepsOrderPerKeyManyKeysAtOnceOverFewConnections) {
  constexpr int keys = 8, each = 40, concurrency = 6;
  std::mutex mutex;
  std::map<int, std::vector<int>> got;
  std::set<int> busy;
  size_t most_at_once = 0;
  bool overlap = false;
  FaultServer peer([&](const HttpRequest &request, Peer &to) {
    int key = number_of(request, "key"), n = number_of(request, "n");
    {
      std::lock_guard lock(mutex);
      overlap |= !busy.insert(key).second;
      most_at_once = std::max(most_at_once, busy.size());
      got[key].push_back(n);
    }
    std::this_thread::sleep_for(milliseconds((key * 7 + n) % 3));  // a peer with uneven response times
    {
      std::lock_guard lock(mutex);
      busy.erase(key);
    }
    return to.answer(200, {}, "ok");
  });
  WebhookHarness crm(WebhookHarness::local(peer, {{"concurrency", std::to_string(concurrency)}}));
  EXPECT_EQ(crm.sink->credit(), 256u);
  int submitted = 0, full = 0;
  for (int n = 0; n < each; ++n)
    for (int key = 1; key <= keys; ++key) {
      std::string payload = "{\"key\": " + std::to_string(key) + ", \"n\": " + std::to_string(n) + "}";
      TestEvent event(static_cast<uint64_t>(submitted), static_cast<uint64_t>(key), payload);
      /* Completions on the HTTP thread can only increase the credit between the two calls. */
      for (unsigned credit = crm.sink->credit(); !crm.sink->submit(event.get()); credit = crm.sink->credit()) {
        ++full;  // back-pressure
        EXPECT_EQ(credit, 0u);
        crm.sink->flush();
        crm.wait(crm.reporter->completions().size() + 1);
      }
      ++submitted;
    }
  crm.sink->flush();
  for (const Completion &completion : crm.wait(keys * each))
    EXPECT_EQ(completion.outcome, Outcome::Sent) << completion.error;
  EXPECT_GT(full, 0);
  std::lock_guard lock(mutex);
  EXPECT_FALSE(overlap);
  EXPECT_GT(most_at_once, 1u);
  EXPECT_LE(most_at_once, static_cast<size_t>(concurrency));
  EXPECT_LE(peer.connections(), concurrency);
  for (auto &[key, numbers] : got) {
    EXPECT_EQ(numbers.size(), static_cast<size_t>(each));
    EXPECT_TRUE(std::is_sorted(numbers.begin(), numbers.end())) << "key " << key;
  }
  EXPECT_EQ(crm.sink->credit(), 256u);
}

TEST(Webhook, AFailingEventHandsItsFollowersBackAndNothingSlipsPast) {
  std::mutex mutex;
  std::vector<int> got;
  FaultServer peer([&](const HttpRequest &request, Peer &to) {
    int n = number_of(request, "n");
    std::lock_guard lock(mutex);
    got.push_back(n);
    return to.answer(n == 1 ? 422 : 200, {}, "no");
  });
  WebhookHarness crm(WebhookHarness::local(peer));
  for (int n : {1, 2, 3})
    crm.submit(TestEvent(static_cast<uint64_t>(n), 7, "{\"n\": " + std::to_string(n) + "}"));
  crm.submit(TestEvent(10, 8, "{\"n\": 10}"));
  crm.sink->flush();
  // When the eventfd is readable, the failure has happened but the main thread does not know it yet: an event
  // submitted now must wait too.
  auto end = patience_ends(std::chrono::seconds(10));
  for (int rings = 0; rings < 2 && Clock::now() < end;) {  // one for key 8's success, one for key 7's failure
    pollfd ready{crm.reporter->wake_fd(), POLLIN, 0};
    ::poll(&ready, 1, 100);
    uint64_t count = 0;
    if (read(crm.reporter->wake_fd(), &count, sizeof(count)) > 0)
      rings += static_cast<int>(count);
  }
  crm.submit(TestEvent(4, 7, "{\"n\": 4}"));
  crm.sink->flush();
  crm.sink->poll();
  std::map<uint64_t, Completion> by_ticket;
  std::vector<uint64_t> order;
  for (Completion &completion : crm.wait(5)) {
    if (completion.key_hash == 7)
      order.push_back(completion.ticket);
    by_ticket[completion.ticket] = completion;
  }
  EXPECT_EQ(order, (std::vector<uint64_t>{1, 2, 3, 4}));
  EXPECT_EQ(by_ticket[1].outcome, Outcome::Retry);
  EXPECT_EQ(by_ticket[1].error, "HTTP 422: no");
  for (uint64_t ticket : {2, 3, 4})
    EXPECT_EQ(by_ticket[ticket].outcome, Outcome::Returned);
  EXPECT_EQ(by_ticket[10].outcome, Outcome::Sent);
  EXPECT_EQ(peer.requests(), 2);
  // The key is free again when the failure has been fetched.
  EXPECT_EQ(crm.send(TestEvent(2, 7, "{\"n\": 2}")).outcome, Outcome::Sent);
}

TEST(Webhook, JudgesEveryStatus) {
  std::atomic<int> status{0};
  Shared<std::string> headers;
  FaultServer peer(
      [&](const HttpRequest &, Peer &to) { return to.answer(status, headers.get(), " b\xc3\xa9\x01\n\xff \n"); });
  WebhookHarness crm(WebhookHarness::local(peer));
  uint64_t ticket = 0;
  auto send = [&](int code, std::string more = {}) {
    status = code;
    headers.set(std::move(more));
    return crm.send(TestEvent(++ticket, 5));
  };
  for (int code : {200, 201, 202, 204, 299})
    EXPECT_EQ(send(code).outcome, Outcome::Sent) << code;
  for (int code : {408, 425, 429, 500, 502, 503, 504, 599}) {
    Completion completion = send(code);
    EXPECT_EQ(completion.outcome, Outcome::RetryBlameSink) << code;
    EXPECT_EQ(completion.error, "HTTP " + std::to_string(code) + ": b\xc3\xa9 \xef\xbf\xbd");
    EXPECT_EQ(completion.retry_after_ms, -1);
  }
  for (int code : {400, 409, 413, 422})
    EXPECT_EQ(send(code).outcome, Outcome::Retry) << code;
  for (int code : {401, 403, 404})
    EXPECT_EQ(send(code).outcome, Outcome::Refused) << code;
  for (int code : {301, 302, 307, 308}) {
    Completion completion = send(code, "Location: " + peer.url("/elsewhere") + "\r\n");
    EXPECT_EQ(completion.outcome, Outcome::Refused);
    EXPECT_EQ(completion.error, "HTTP " + std::to_string(code) + ": redirect not followed");
  }
  EXPECT_EQ(peer.requests(), static_cast<int>(ticket));  // no redirect was followed, no request was sent twice
  EXPECT_EQ(peer.connections(), 1);                      // and one connection served them all
}

/* For the event and for the endpoint: no event is accepted before. */
static std::string http_date_in(time_t seconds) {
  char date[64];
  const time_t then = time(nullptr) + seconds;
  return {date, strftime(date, sizeof(date), "%a, %d %b %Y %H:%M:%S GMT", gmtime(&then))};
}

TEST(Webhook, HonoursRetryAfterInBothForms) {
  struct {
    std::string value;
    int64_t most, least;
  } cases[] = {
      {"120", 120'000, 120'000},
      {"9999999", 86'400'000, 86'400'000}, /* the engine limits it to max_pause */
      {"soon", -1, -1},
      {http_date_in(600), 600'000, 500'000},
      {http_date_in(-3000) + "\r\nDate: " + http_date_in(-3600), 601'000, 599'000}, /* the peer's clock is late */
      {"Thu, 01 Jan 1998 00:00:00 GMT", -1, -1}};
  for (auto &[value, most, least] : cases) {
    FaultServer peer(
        [value = value](const HttpRequest &, Peer &to) { return to.answer(503, "Retry-After: " + value + "\r\n"); });
    WebhookHarness crm(WebhookHarness::local(peer));
    for (uint64_t n = 1; n <= 40; ++n)  // more than run at once: events that would wait long are returned
      crm.submit(TestEvent(n, n));
    crm.sink->flush();
    auto completions = crm.wait(most > 0 ? 40 : 32);
    EXPECT_LE(completions.at(0).retry_after_ms, most) << value;
    EXPECT_GE(completions.at(0).retry_after_ms, least) << value;
    EXPECT_EQ(crm.sink->credit() == 0, most > 0) << value;
    EXPECT_EQ(crm.sink->credit_at() > Clock::now() + std::chrono::minutes(1), most > 0) << value;
    EXPECT_EQ(std::any_of(completions.begin(), completions.end(),
                          [](auto &each) { return each.outcome == Outcome::Returned; }),
              most > 0)
        << value;
  }
}

TEST(Webhook, GoneDisablesTheSinkAndReleasesEverything) {
  FaultServer peer([](const HttpRequest &, Peer &to) { return to.answer(410); });
  WebhookHarness crm(WebhookHarness::local(peer, {{"concurrency", "1"}}));
  for (uint64_t n = 1; n <= 5; ++n)
    crm.submit(TestEvent(n, n));
  crm.sink->flush();
  for (const Completion &completion : crm.wait(5))
    EXPECT_EQ(completion.outcome, Outcome::Returned);
  EXPECT_EQ(crm.reporter->disabled_reason(), "410 Gone");
  EXPECT_EQ(peer.requests(), 1);
}

TEST(Webhook, SecretsThatThePeerEchoesAreMasked) {
  FaultServer peer([](const HttpRequest &request, Peer &to) {
    return to.answer(400, {}, "bad " + request.line + " with " + request.headers.at("authorization"));
  });
  Options server = WebhookHarness::local(peer);
  server.erase("url");
  WebhookHarness crm(server, {{"url", peer.url("/hook/tok-in-url")}, {"token", "s3cr3t-token"}});
  EXPECT_EQ(crm.send(TestEvent(1, 1)).error, "HTTP 400: bad POST *** HTTP/1.1 with Bearer ***");
}

namespace {

/* What a peer sees of one event. */
HttpRequest seen_of(const Options &server, const Options &mapping, TestEvent event, const char *path = "/hook") {
  Shared<HttpRequest> last;
  FaultServer peer([&](const HttpRequest &request, Peer &to) {
    last.set(request);
    return to.answer(204);
  });
  Options options = server;
  options.insert({"url", peer.url(path)});
  EXPECT_EQ(WebhookHarness(WebhookHarness::local(peer, options), mapping).send(std::move(event)).outcome,
            Outcome::Sent);
  return last.get();
}

}  // namespace

TEST(Webhook, AnyRestEndpointIsServedAsItIs) {
  TestEvent event(1, 1, R"({"total": 1.00})");
  event.event.aggregate_id = text("4/2");
  event.headers = {{"tenant", "acme"}};
  HttpRequest seen = seen_of(
      {{"method", "put"},
       {"body", R"({"ref": "order-${aggregate_id}", "payload": ${payload}})"},
       {"headers",
        R"({"X-Type": "${event_type}!", "X-None": "${header.none}", "Content-Type": "application/vnd.x+json"})"}},
      {}, event, "/orders/${aggregate_id}?t=${header.tenant}");
  EXPECT_EQ(seen.line, "PUT /orders/4%2F2?t=acme HTTP/1.1");
  EXPECT_EQ(seen.body, R"({"ref": "order-4/2", "payload": {"total": 1.00}})");
  EXPECT_EQ(seen.headers["content-type"], "application/vnd.x+json");
  EXPECT_EQ(seen.headers["x-type"], "order.created!");
  EXPECT_EQ(seen.headers.count("x-none"), 0u);

  seen = seen_of({{"method", "DELETE"}, {"body", ""}}, {{"secret", secret}}, event);
  EXPECT_EQ(seen.line, "DELETE /hook HTTP/1.1");
  EXPECT_EQ(seen.body, "");
  EXPECT_EQ(seen.headers.count("content-type"), 0u);
  EXPECT_EQ(seen.headers["webhook-signature"],
            standard_webhooks::SigningKey::parse("secret", secret)
                .sign(seen.headers["webhook-id"], std::stoll(seen.headers["webhook-timestamp"]), ""));
}

TEST(Webhook, BothSecretsSignTheNewOneFirst) {
  const std::string old_secret = "whsec_" + std::string(43, 'A');
  TestEvent event(1, 1);
  event.headers = {{"svix-id", "forged"}, {"Webhook-Signature", "forged"}, {"Svix-Other", "forged"}};
  HttpRequest seen =
      seen_of({{"forward_headers", "*"}}, {{"secret", secret + std::string(", ") + old_secret}}, event);
  auto sign = [&](const std::string &with) {
    return standard_webhooks::SigningKey::parse("secret", with)
        .sign(seen.headers["webhook-id"], std::stoll(seen.headers["webhook-timestamp"]), seen.body);
  };
  EXPECT_EQ(seen.headers["webhook-signature"], sign(secret) + " " + sign(old_secret));
  EXPECT_EQ(seen.headers["webhook-id"], "01000000-0000-0000-0000-000000000000");
  for (const char *name : {"svix-id", "svix-other"})
    EXPECT_EQ(seen.headers.count(name), 0u) << name;
}

TEST(Webhook, TheIdempotencyKeyIsAQuotedString) {
  TestEvent event(1, 1);
  event.headers = {{"idempotency-key", "forged"}};
  Options all = {{"forward_headers", "*"}}, own = {{"forward_headers", "*"}, {"idempotency_key", "true"}};
  EXPECT_EQ(seen_of(own, {}, event).headers["idempotency-key"], "\"01000000-0000-0000-0000-000000000000\"");
  event.event.dedup_key = text(R"(a "b" \c)");
  EXPECT_EQ(seen_of(own, {}, event).headers["idempotency-key"], R"("a \"b\" \\c")");
  EXPECT_EQ(seen_of(all, {}, event).headers["idempotency-key"], "forged");
}

TEST(Webhook, AuthenticatesAndLetsNoEventDoSo) {
  TestEvent event(1, 1);
  event.headers = {{"Authorization", "Basic forged"}, {"x-key", "forged"}};
  Options all = {{"forward_headers", "*"}};
  EXPECT_EQ(seen_of(all, {{"user", "Aladdin"}, {"password", "open sesame"}}, event).headers["authorization"],
            "Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ=="); /* RFC 7617 */
  EXPECT_EQ(seen_of(all, {{"user", "sk_test"}}, event).headers["authorization"], "Basic c2tfdGVzdDo=");
  HttpRequest seen = seen_of(all, {{"headers", R"({"X-Key": "${s3cr3t}", "Authorization": "Token 1"})"}}, event);
  EXPECT_EQ(seen.headers["x-key"], "${s3cr3t}");
  EXPECT_EQ(seen.headers["authorization"], "Token 1");
}

TEST(Webhook, TheRawFormatIsThePayloadItself) {
  TestEvent event(1, 1, R"({"total": 1.00})");
  HttpRequest seen = seen_of({{"format", "raw"}}, {}, event);
  EXPECT_EQ(seen.body, R"({"total": 1.00})");
  EXPECT_EQ(seen.headers["content-type"], "application/json");
  EXPECT_EQ(seen.headers["webhook-id"], "01000000-0000-0000-0000-000000000000");
  FaultServer peer([](const HttpRequest &request, Peer &to) {
    return to.answer(request.body.empty() && !request.headers.count("content-type") ? 200 : 400);
  });
  WebhookHarness crm(WebhookHarness::local(peer, {{"format", "raw"}}));
  event.get();
  event.event.payload = {nullptr, 0};
  ASSERT_TRUE(crm.sink->submit(event.event));
  crm.sink->flush();
  EXPECT_EQ(crm.wait(1)[0].outcome, Outcome::Sent) << "a tombstone has no body";
}

TEST(Webhook, NoSecretOfTheMappingIsEchoed) {
  FaultServer peer([](const HttpRequest &request, Peer &to) {
    std::string told;
    for (auto &[name, value] : request.headers)
      if (name == "authorization" || name == "x-key" || name == "cookie")
        told += value + ", ";
    return to.answer(400, {}, told + request.line + ", open sesame, token-in-the-url");
  });
  Options server = WebhookHarness::local(peer);
  server.erase("url");
  TestEvent event(1, 1);
  event.event.aggregate_id = text("42");
  WebhookHarness crm(server, {{"url", peer.url("/${aggregate_id}/token-in-the-url?k=v")},
                              {"user", "Aladdin"},
                              {"password", "open sesame"},
                              {"headers", R"({"X-Key": "Token s3cr3t-key"})"}});
  EXPECT_EQ(crm.send(event).error, "HTTP 400: Basic ***, ***, POST *** HTTP/1.1, ***, ***");
}
