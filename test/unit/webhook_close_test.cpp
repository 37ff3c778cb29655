/* Closing while a peer hangs: a resolver, or an endpoint. */
#include "webhook_fixture.h"

#include <atomic>
#include <fstream>
#include <set>

#include <curl/curl.h>
#include <dlfcn.h>
#include <netdb.h>

using namespace outbox;
using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;
using Peer = FaultServer::Peer;

namespace {

const std::string slow_host = "slow-resolver.invalid", quick_host = "quick-resolver.test";
constexpr std::chrono::minutes slowness(5);
constexpr std::chrono::seconds soon(60);
std::atomic<int> resolving{0};
std::atomic<bool> let_go{false};

}  // namespace

/* Overrides the C library's function: some names take until the end of a test, as with a resolver whose server is
 * down. */
extern "C" int getaddrinfo(const char *node, const char *service, const addrinfo *hints, addrinfo **result) {
  static const auto next = reinterpret_cast<decltype(&getaddrinfo)>(dlsym(RTLD_NEXT, "getaddrinfo"));
  if (!node || !std::string(node).ends_with(slow_host))
    return next(node && node == quick_host ? "127.0.0.1" : node, service, hints, result);
  ++resolving;
  for (auto begin = Clock::now(); !let_go && Clock::now() - begin < slowness;)
    std::this_thread::sleep_for(milliseconds(5));
  --resolving;
  return EAI_AGAIN;
}

/* Leaves nothing behind for other tests. */
static void end_resolvers() {
  let_go = true;
  for (auto begin = Clock::now(); resolving > 0 && Clock::now() - begin < soon;)
    std::this_thread::sleep_for(milliseconds(10));
  EXPECT_EQ(resolving, 0);
}

TEST(WebhookClose, ASlowResolverHoldsUpNeitherTimeoutNorOthersNorTheEnd) {
  FaultServer peer([](const HttpRequest &, Peer &to) { return to.answer(200); });
  let_go = false;
  auto begin = Clock::now();
  {
    WebhookHarness slow(Options{{"url", "https://" + slow_host + "/"}, {"timeout", "300ms"}});
    WebhookHarness other(WebhookHarness::local(peer));
    slow.submit(TestEvent(1, 1));
    slow.sink->flush();
    EXPECT_EQ(other.send(TestEvent(1, 1)).outcome, Outcome::Sent);
    EXPECT_EQ(slow.wait(1).at(0).outcome, Outcome::SinkDown);
    bool asks_for_each_family = curl_version_info(CURLVERSION_NOW)->version_num >= 0x081400;
    EXPECT_EQ(resolving, asks_for_each_family ? 2 : 1);
  }
  EXPECT_LT(Clock::now() - begin, soon);
  end_resolvers();
}

TEST(WebhookClose, ManySlowNamesHoldUpNoOther) {
  FaultServer peer([](const HttpRequest &, Peer &to) { return to.answer(200); });
  std::string url = peer.url();
  url.replace(url.find("127.0.0.1"), 9, quick_host);
  let_go = false;
  auto begin = Clock::now();
  {
    std::vector<std::unique_ptr<WebhookHarness>> slow;
    for (int n = 0; n < 30; n++) {
      slow.push_back(std::make_unique<WebhookHarness>(
          Options{{"url", "https://" + std::to_string(n) + "." + slow_host + "/"}, {"timeout", "1s"}}));
      slow.back()->submit(TestEvent(1, 1));
      slow.back()->sink->flush();
    }
    while (resolving < 20 && Clock::now() - begin < std::chrono::seconds(3))
      std::this_thread::sleep_for(milliseconds(1));
    WebhookHarness other(WebhookHarness::local(url, {{"timeout", "1min"}}));
    EXPECT_EQ(other.send(TestEvent(1, 1)).outcome, Outcome::Sent);
  }
  EXPECT_LT(Clock::now() - begin, soon);
  end_resolvers();
}

TEST(WebhookClose, TheEngineClosesWhileAnEndpointHangs) {
  std::atomic<int> hanging{0};
  FaultServer peer([&](const HttpRequest &, Peer &to) {
    ++hanging;
    return to.hang();
  });
  ob_error error;
  ob_engines *engine = ob_engines_open(&error);
  ASSERT_TRUE(engine) << error.message;
  std::string url = peer.url();
  const door::OptionList options = {
      {"url", url.c_str()}, {"allow_http", "true"}, {"allow_networks", "127.0.0.0/8"}, {"timeout", "5min"}};
  ob_sink *sink = border::sink_open(engine, "crm", "webhook", options, {}, &error);
  ASSERT_TRUE(sink) << error.message;
  TestEvent one(1, 1), two(2, 1);
  ob_event events[] = {one.get(), two.get()};
  ASSERT_EQ(sink->kind->submit(sink, events, 2), 2u);
  auto begin = Clock::now();
  while (hanging == 0 && Clock::now() - begin < soon)
    std::this_thread::sleep_for(milliseconds(1));

  sink->kind->sink_close(sink, 100);
  std::map<uint64_t, ob_outcome> outcomes;
  while (outcomes.size() < 2 && Clock::now() - begin < soon) {
    pollfd ready{ob_engines_fd(engine), POLLIN, 0};
    ::poll(&ready, 1, 1000);
    ob_completion completion;
    while (ob_collect(engine, &completion, 1) == 1)
      outcomes[completion.ticket] = completion.outcome;
  }
  EXPECT_EQ(outcomes, (std::map<uint64_t, ob_outcome>{{1, OB_RETURNED}, {2, OB_RETURNED}}));
  EXPECT_TRUE(sink->kind->sink_closed(sink));
  EXPECT_TRUE(ob_engines_close(engine, 60'000));
  EXPECT_LT(Clock::now() - begin, soon);
}

TEST(WebhookClose, GivesUpAtOnceWhileThePeerHangs) {
  std::atomic<int> hanging{0};
  FaultServer peer([&](const HttpRequest &, Peer &to) {
    ++hanging;
    return to.hang();
  });
  auto begin = Clock::now();
  {
    WebhookHarness crm(WebhookHarness::local(peer, {{"timeout", "5min"}, {"concurrency", "3"}}));
    for (uint64_t n = 1; n <= 8; ++n)
      crm.submit(TestEvent(n, n <= 4 ? 1 : n));
    crm.sink->flush();
    while (hanging < 3 && Clock::now() - begin < soon)
      std::this_thread::sleep_for(milliseconds(1));
    crm.sink->release_queued();
    auto released = crm.wait(5);
    std::set<uint64_t> tickets;
    for (auto &completion : released) {
      EXPECT_EQ(completion.outcome, Outcome::Returned);
      tickets.insert(completion.ticket);
    }
    EXPECT_EQ(tickets, (std::set<uint64_t>{2, 3, 4, 7, 8}));
    crm.sink->abandon();
    EXPECT_EQ(crm.reporter->completions().size(), 8u);  // at once, without waiting for the other thread
    EXPECT_EQ(crm.sink->credit(), 256u);
  }
  EXPECT_LT(Clock::now() - begin, soon);
  {
    WebhookHarness crm(WebhookHarness::local(peer, {{"timeout", "5min"}}));
    crm.submit(TestEvent(1, 1));
    crm.sink->flush();
    while (hanging < 4 && Clock::now() - begin < soon)
      std::this_thread::sleep_for(milliseconds(1));
  }  // destroyed with a request in flight: nothing is reported, nothing hangs
  EXPECT_LT(Clock::now() - begin, soon);
}

TEST(WebhookClose, OneThreadServesAllSinksAndEndsWithTheLast) {
  auto threads = [] {
    std::ifstream status("/proc/self/status");
    for (std::string line; std::getline(status, line);)
      if (line.starts_with("Threads:"))
        return std::stoi(line.substr(8));
    return -1;
  };
  DeadPort port;
  Options options = WebhookHarness::local(port.url);
  int before = threads();
  {
    WebhookHarness one(options), two(options), three(options);
    EXPECT_EQ(one.send(TestEvent(1, 1)).outcome, Outcome::SinkDown);
    EXPECT_EQ(two.send(TestEvent(1, 1)).outcome, Outcome::SinkDown);
    EXPECT_EQ(threads(), before + 1);
  }
  /* The kernel counts a thread for a moment after it was joined. */
  for (const auto end = patience_ends(milliseconds(5000)); threads() != before && Clock::now() < end;)
    std::this_thread::sleep_for(milliseconds(1));
  EXPECT_EQ(threads(), before);
}
