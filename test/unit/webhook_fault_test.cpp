/* A peer that hangs, sends nonsense, is down, or must not be reached. */
#include "webhook_fixture.h"

#include <fstream>

using namespace outbox;
using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;
using Peer = FaultServer::Peer;

namespace {

size_t resident_kb() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);)
    if (line.starts_with("VmRSS:"))
      return std::stoul(line.substr(6));
  return 0;
}

}  // namespace

TEST(WebhookFault, AHangingPeerTimesOut) {
  FaultServer peer([](const HttpRequest &, Peer &to) { return to.hang(); });
  WebhookHarness crm(WebhookHarness::local(peer, {{"timeout", "200ms"}}));
  auto begin = Clock::now();
  Completion completion = crm.send(TestEvent(1, 1));
  EXPECT_EQ(completion.outcome, Outcome::RetryBlameSink);
  EXPECT_NE(completion.error.find("timed out"), std::string::npos) << completion.error;
  EXPECT_GE(Clock::now() - begin, milliseconds(150));
}

TEST(WebhookFault, ATricklingPeerTimesOut) {
  FaultServer peer([](const HttpRequest &, Peer &to) {
    to.send("HTTP/1.1 200 OK\r\nX-Slow: ");
    while (to.send("x"))
      std::this_thread::sleep_for(milliseconds(20));
    return false;
  });
  WebhookHarness crm(WebhookHarness::local(peer, {{"timeout", "300ms"}}));
  EXPECT_EQ(crm.send(TestEvent(1, 1)).outcome, Outcome::RetryBlameSink);
}

/* After the end of an outage there must not be another pause. */
TEST(WebhookFault, WhatBeganBeforeAnOutageSaysNothingNewWhenItFails) {
  FaultServer peer([](const HttpRequest &, FaultServer::Peer &to) { return to.hang(); });
  WebhookHarness crm(WebhookHarness::local(peer, {{"timeout", "500ms"}, {"concurrency", "2"}}));
  for (uint64_t ticket = 1; ticket <= 3; ticket++)
    crm.submit(TestEvent(ticket, ticket));
  crm.sink->flush();
  while (peer.requests() < 2)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  crm.sink->pause();
  auto ended = crm.wait(1);
  ASSERT_EQ(ended.size(), 1u);
  EXPECT_EQ(ended[0].ticket, 3u) << "it had not begun";
  EXPECT_EQ(ended[0].outcome, Outcome::Returned);
  ended = crm.wait(3);
  for (const Completion &each : ended)
    EXPECT_EQ(each.outcome, Outcome::Returned) << each.error;
  EXPECT_EQ(crm.send(TestEvent(4, 4)).outcome, Outcome::RetryBlameSink) << "this one is news";
}

TEST(WebhookFault, GarbageIsAFailureOfThePeer) {
  Shared<std::string> bytes;
  FaultServer peer([&](const HttpRequest &, Peer &to) {
    to.send(bytes.get());
    return false;
  });
  WebhookHarness crm(WebhookHarness::local(peer));
  uint64_t ticket = 0;
  for (std::string garbage :
       {std::string(), std::string("hello\n"), std::string("SSH-2.0-OpenSSH_9.2\r\n"), std::string(1000, '\0'),
        std::string("HTTP/1.1 "), std::string("HTTP/1.1 200 OK\r\nContent-Length: 100\r\n"),
        std::string("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nzzz\r\n"),
        std::string("HTTP/1.1 200 OK\r\nContent-Length: -5\r\n\r\n"), std::string("HTTP/9.9 200 OK\r\n\r\n"),
        std::string("HTTP/1.1 101 Switching Protocols\r\n\r\n"), std::string("HTTP/1.1 100 Continue\r\n\r\n")}) {
    bytes.set(garbage);
    Completion completion = crm.send(TestEvent(++ticket, 1));
    EXPECT_EQ(completion.outcome, Outcome::RetryBlameSink) << garbage;
    EXPECT_FALSE(completion.error.empty());
  }
}

TEST(WebhookFault, EndlessHeadersAreCutOff) {
  FaultServer peer([&](const HttpRequest &, Peer &to) {
    to.send("HTTP/1.1 200 OK\r\n");
    while (to.send("X-Filler: " + std::string(1000, 'x') + "\r\n"))
      ;
    return false;
  });
  WebhookHarness crm(WebhookHarness::local(peer));
  Completion completion = crm.send(TestEvent(1, 1));
  EXPECT_EQ(completion.outcome, Outcome::RetryBlameSink);
  EXPECT_EQ(completion.error, "the answer's headers are too long");
}

TEST(WebhookFault, AnEndlessAnswerCostsLittle) {
  std::atomic<size_t> sent{0};
  std::atomic<int> status{200};
  FaultServer peer([&](const HttpRequest &, Peer &to) {
    std::string chunk(1 << 20, 'x');
    to.send("HTTP/1.1 " + std::to_string(status) + " X\r\nContent-Length: 1073741824\r\n\r\n");
    for (int i = 0; i < 1024 && to.send(chunk); ++i)
      sent += chunk.size();
    return false;
  });
  WebhookHarness crm(WebhookHarness::local(peer));
  EXPECT_EQ(crm.send(TestEvent(1, 1)).outcome, Outcome::Sent);
  size_t before = resident_kb();
  for (uint64_t n = 2; n <= 5; ++n)
    EXPECT_EQ(crm.send(TestEvent(n, 1)).outcome, Outcome::Sent);
  status = 500;
  Completion completion = crm.send(TestEvent(6, 1));
  EXPECT_EQ(completion.outcome, Outcome::RetryBlameSink);
  EXPECT_EQ(completion.error, "HTTP 500: " + std::string(OB_ERROR_MAX - 1, 'x') + " [cut]");
  EXPECT_LT(sent.load(), size_t(200) << 20);  // bytes in the sockets' buffers
  EXPECT_LT(resident_kb(), before + 64 * 1024);
}

TEST(WebhookFault, ARefusedConnectionIsTheSinksFault) {
  DeadPort port;
  WebhookHarness crm(WebhookHarness::local(port.url, {{"concurrency", "1"}}));
  for (uint64_t n = 1; n <= 4; ++n)
    crm.submit(TestEvent(n, n % 2 + 1));
  crm.sink->flush();
  auto completions = crm.wait(4);
  EXPECT_EQ(completions.at(0).outcome, Outcome::SinkDown);
  EXPECT_NE(completions.at(0).error.find("Failed to connect"), std::string::npos) << completions.at(0).error;
  for (size_t i = 1; i < 4; ++i)
    EXPECT_EQ(completions.at(i).outcome, Outcome::Returned);
  EXPECT_EQ(crm.send(TestEvent(5, 1)).outcome, Outcome::SinkDown);  // a probe comes to the same result
}

/* libcurl would send the request again by itself. */
TEST(WebhookFault, AKeptConnectionThatBreaksWhereNoneIsTakenAnymoreCostsNoAttempt) {
  FaultServer *server = nullptr;
  FaultServer peer([&](const HttpRequest &, Peer &to) {
    if (server->requests() == 1)
      return to.answer(200);
    server->refuse();
    linger at_once{1, 0};
    setsockopt(to.fd, SOL_SOCKET, SO_LINGER, &at_once, sizeof(at_once));
    return false;
  });
  server = &peer;
  WebhookHarness crm(WebhookHarness::local(peer));
  EXPECT_EQ(crm.send(TestEvent(1, 1)).outcome, Outcome::Sent);
  Completion completion = crm.send(TestEvent(2, 1));
  EXPECT_EQ(completion.outcome, Outcome::Deferred);
  EXPECT_EQ(completion.error, "a kept connection broke before an answer");
  EXPECT_EQ(completion.reason, OB_REASON_CONNECTION);
}

TEST(WebhookFault, AnUnknownHostIsTheSinksFault) {
  WebhookHarness crm(Options{{"url", "https://no-such-host.invalid/"}, {"timeout", "2s"}});
  Completion completion = crm.send(TestEvent(1, 1));
  EXPECT_EQ(completion.outcome, Outcome::SinkDown);
  EXPECT_FALSE(completion.error.empty());
}

TEST(WebhookFault, PrivateNetworksAreRefusedWithTheStatementThatAllowsThem) {
  FaultServer peer([](const HttpRequest &, Peer &to) { return to.answer(200); });
  Options options = {{"url", peer.url()}, {"allow_http", "true"}};
  WebhookHarness crm(options);
  Completion completion = crm.send(TestEvent(1, 1));
  EXPECT_EQ(completion.outcome, Outcome::SinkDown);
  EXPECT_EQ(completion.error,
            "The url's host has an address that is the database server itself. If events are meant to go there, a "
            "superuser allows it by: ALTER SERVER \"crm\" OPTIONS (ADD allow_networks '127.0.0.0/8')");
  options["allow_networks"] = "10.0.0.0/8";
  WebhookHarness other(options, {}, "My \"CRM\"");
  EXPECT_NE(other.send(TestEvent(1, 1))
                .error.find("ALTER SERVER \"My \"\"CRM\"\"\" OPTIONS (SET allow_networks '10.0.0.0/8, 127.0.0.0/8')"),
            std::string::npos);
  auto send_to = [&](const std::string &host) {
    options["url"] = "http://" + host + ":" + std::to_string(peer.port()) + "/";
    Completion sent = WebhookHarness(options).send(TestEvent(1, 1));
    EXPECT_EQ(sent.outcome, Outcome::SinkDown) << host;
    return sent.error;
  };
  for (std::string host : {"localhost", "0x7f.1", "0X7F000001", "2130706433", "127.1", "127.0.1", "0177.0.0.1", "0",
                           "0.0.0.0", "[::1]", "[::]", "[::ffff:127.0.0.1]", "[::ffff:7f00:1]", "[::127.0.0.1]",
                           "[64:ff9b::7f00:1]", "[fe80::1%251]", "[2002:7f00:1::]"})
    EXPECT_NE(send_to(host).find("ALTER SERVER"), std::string::npos) << host;
  for (std::string host : {"LOCALHOST.", "127.0.0.1."})
    send_to(host);  // may be unresolvable, which depends on the resolver
  for (std::string host : {"①②⑦.⓪.⓪.①", "１２７.0.0.1", "127。0。0。1"})
    EXPECT_THROW(send_to(host), BadInput) << host;  // would depend on the locale
  EXPECT_EQ(peer.connections(), 0);
}

TEST(WebhookFault, TheEnvironmentsProxiesAreNotMeant) {
  FaultServer peer([](const HttpRequest &, Peer &to) { return to.answer(200); }),
      proxy([](const HttpRequest &, Peer &to) { return to.answer(502); });
  for (const char *name : {"http_proxy", "all_proxy", "ALL_PROXY"})
    setenv(name, proxy.url("").c_str(), 1);
  WebhookHarness crm(WebhookHarness::local(peer));
  Completion completion = crm.send(TestEvent(1, 1));
  EXPECT_EQ(completion.outcome, Outcome::Sent) << completion.error;
  EXPECT_EQ(proxy.connections(), 0);

  /* The sink's own proxy is used even if the environment excepts the host. */
  setenv("no_proxy", "*", 1);
  WebhookHarness other(WebhookHarness::local(peer, {{"proxy", proxy.url("")}}));
  EXPECT_EQ(other.send(TestEvent(1, 1)).error, "HTTP 502");
  EXPECT_EQ(proxy.connections(), 1);
  for (const char *name : {"http_proxy", "all_proxy", "ALL_PROXY", "no_proxy"})
    unsetenv(name);
}

TEST(WebhookFault, AProxyThatRefusesTheTunnelIsNamed) {
  Shared<int> status(407);
  FaultServer proxy([&](const HttpRequest &request, Peer &to) {
    EXPECT_EQ(request.line, "CONNECT hooks.example:443 HTTP/1.1");
    return to.answer(status.get(), "Proxy-Authenticate: Basic realm=\"x\"\r\n");
  });
  WebhookHarness crm(
      Options{{"url", "https://hooks.example/"}, {"proxy", proxy.url("")}, {"allow_networks", "127.0.0.0/8"}});
  std::string from = " from the proxy " + proxy.url("") + ": ";
  Completion completion = crm.send(TestEvent(1, 1));
  EXPECT_EQ(completion.outcome, Outcome::SinkDown);
  EXPECT_EQ(completion.reason, OB_REASON_AUTH);
  const std::string credentials = "it refuses proxy_user and proxy_password of the user mapping, or misses them";
  EXPECT_EQ(completion.error, "HTTP 407" + from + credentials);
  status.set(401);  // as tinyproxy sends it
  EXPECT_EQ(crm.send(TestEvent(2, 1)).error, "HTTP 401" + from + credentials);
  for (int other : {403, 502, 503}) {
    status.set(other);
    completion = crm.send(TestEvent(static_cast<uint64_t>(other), 1));
    EXPECT_EQ(completion.outcome, Outcome::SinkDown) << other;
    EXPECT_EQ(completion.reason, OB_REASON_CONNECTION) << other;
    EXPECT_EQ(completion.error,
              "HTTP " + std::to_string(other) + from +
                  "it makes no connection to the url's host; look at its rules, and at option proxy");
  }
}

TEST(WebhookFault, AConnectionOfAnotherSinkDoesNotLeadPastTheGuard) {
  FaultServer peer([](const HttpRequest &, Peer &to) { return to.answer(200); });
  WebhookHarness allowed(WebhookHarness::local(peer));
  EXPECT_EQ(allowed.send(TestEvent(1, 1)).outcome, Outcome::Sent);  // leaves an idle connection behind
  WebhookHarness refused(Options{{"url", peer.url()}, {"allow_http", "true"}});
  Completion completion = refused.send(TestEvent(2, 1));
  EXPECT_EQ(completion.outcome, Outcome::SinkDown);
  EXPECT_NE(completion.error.find("the database server itself"), std::string::npos);
  EXPECT_EQ(peer.requests(), 1);
}

TEST(WebhookFault, AConnectionThatIsBeingClosedIsReplaced) {
  FaultServer peer([](const HttpRequest &, Peer &to) {
    to.answer(200);
    return false;  // closes without notice, while the next request may already be in flight
  });
  WebhookHarness crm(WebhookHarness::local(peer));
  for (uint64_t n = 1; n <= 1000; ++n) {
    TestEvent event(n, 1);
    Completion completion = crm.send(event);
    if (completion.outcome == Outcome::Deferred) {
      event.event.failed = true;
      completion = crm.send(event);
    }
    ASSERT_EQ(completion.outcome, Outcome::Sent) << n << ": " << completion.error;
  }
}

/* The peer may have handled the request before it closed the connection, so an attempt is one request. The first one
 * costs nothing; the next one goes over a new connection. */
TEST(WebhookFault, AKeptConnectionThatThePeerClosesCostsNoAttemptOnce) {
  for (bool reset : {false, true}) {
    std::atomic<int> last{-1};
    FaultServer peer([&](const HttpRequest &request, Peer &to) {
      if (last.exchange(request.connection) != request.connection)
        return to.answer(200);
      linger at_once{1, 0};  // the second request on a connection fails: a reset, or no response
      if (reset)
        setsockopt(to.fd, SOL_SOCKET, SO_LINGER, &at_once, sizeof(at_once));
      return false;
    });
    WebhookHarness crm(WebhookHarness::local(peer));
    EXPECT_EQ(crm.send(TestEvent(1, 1)).outcome, Outcome::Sent);
    for (uint64_t n = 2; n <= 4; ++n) {
      TestEvent event(n, 1);
      Completion completion = crm.send(event);
      EXPECT_EQ(completion.outcome, Outcome::Deferred) << completion.error;
      EXPECT_EQ(completion.retry_after_ms, 0) << "at once";
      EXPECT_EQ(peer.requests(), 2 * static_cast<int>(n) - 2) << "one request per attempt";
      event.event.failed = true;
      EXPECT_EQ(crm.send(event).outcome, Outcome::Sent);
      EXPECT_EQ(peer.connections(), static_cast<int>(n));
    }
    TestEvent again(5, 1);
    again.event.failed = true;
    again.event.attempt = 2;
    EXPECT_EQ(crm.send(again).outcome, Outcome::Sent) << "also later ones get a new connection";
    EXPECT_EQ(peer.requests(), 8);
  }
}

TEST(WebhookFault, AFailureThatWasAnsweredLeavesTheConnectionInUse) {
  FaultServer peer([](const HttpRequest &, Peer &to) { return to.answer(500); });
  WebhookHarness crm(WebhookHarness::local(peer));
  for (bool failed : {false, true, true}) {
    TestEvent event(1, 1);
    event.event.failed = failed;
    EXPECT_EQ(crm.send(event).outcome, Outcome::RetryBlameSink);
  }
  EXPECT_EQ(peer.connections(), 1);
}

/* As if the answer and the end of the connection met each other on the way. */
TEST(WebhookFault, AConnectionIsNotUsedForLongerThanThePeerKeepsIt) {
  struct Case {
    const char *header;
    std::chrono::milliseconds idle;
    int connections;
  };
  for (const Case &each :
       {Case{"Keep-Alive: timeout=3, max=100\r\n", std::chrono::milliseconds(2100), 2},
        Case{"Keep-Alive: timeout=20\r\n", std::chrono::milliseconds(4100), 1},
        Case{"", std::chrono::milliseconds(1000), 1}, Case{"", std::chrono::milliseconds(4100), 2}}) {
    FaultServer peer([&](const HttpRequest &, Peer &to) { return to.answer(200, each.header); });
    WebhookHarness crm(WebhookHarness::local(peer));
    EXPECT_EQ(crm.send(TestEvent(1, 1)).outcome, Outcome::Sent);
    std::this_thread::sleep_for(each.idle);
    EXPECT_EQ(crm.send(TestEvent(2, 1)).outcome, Outcome::Sent);
    EXPECT_EQ(peer.connections(), each.connections) << each.header << each.idle.count();
  }
}
