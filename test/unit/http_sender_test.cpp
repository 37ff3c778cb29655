/* The sender of messages by HTTP requests (http_sender.h), against a server that misbehaves. */
#include "delivery/http/http_sender.h"
#include "line_protocol.h"
#include "patience.h"

#include <algorithm>
#include <condition_variable>
#include <set>

using namespace outbox;
using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;
using Server = FaultServer::Peer;

TEST(HttpSender, KeepsTheOrderOfKeysAndFillsRequests) {
  std::mutex mutex;
  std::map<std::string, std::vector<uint64_t>> arrived;
  std::multiset<std::string> in_flight;
  std::set<size_t> sizes;
  size_t most_at_once = 0, at_once = 0;
  FaultServer peer([&](const HttpRequest &request, Server &to) {
    EXPECT_EQ(request.headers.at("x-kind"), "lines");
    Lines lines = lines_of(request);
    {
      std::lock_guard lock(mutex);
      sizes.insert(lines.size());
      most_at_once = std::max(most_at_once, ++at_once);
      for (const std::string &line : lines) {
        std::string key = line.substr(0, line.find(' '));
        arrived[key].push_back(std::stoull(line.substr(key.size() + 1)));
        in_flight.insert(key);
        EXPECT_EQ(in_flight.count(key), 1u) << "two of a key in flight";
      }
    }
    std::this_thread::sleep_for(milliseconds(1));
    std::lock_guard lock(mutex);
    at_once--;
    for (const std::string &line : lines)
      in_flight.erase(line.substr(0, line.find(' ')));
    return to.answer(200, {}, all_sent(request));
  });
  Harness harness(peer);
  uint64_t submitted = 0;
  while (submitted < 300) {
    for (uint32_t n = harness.sink->credit(); n > 0 && submitted < 300; n--, submitted++)
      harness.submit(submitted + 1, submitted % 7 + 1);
    harness.sink->flush();
    harness.wait(submitted > 20 ? submitted - 20 : 0);
  }
  for (auto &[ticket, end] : harness.wait(300))
    EXPECT_EQ(end.outcome, Outcome::Sent) << end.error;
  EXPECT_EQ(arrived.size(), 7u);
  for (auto &[key, tickets] : arrived)
    EXPECT_TRUE(std::is_sorted(tickets.begin(), tickets.end()));
  EXPECT_EQ(*sizes.rbegin(), 3u);
  EXPECT_EQ(most_at_once, 2u);
}

TEST(HttpSender, EndsEachMessageOfARequestInItsOwnWay) {
  FaultServer peer([&](const HttpRequest &request, Server &to) {
    return to.answer(200, {}, request.body == "1 1\n2 2\n3 3\n" ? "srs" : all_sent(request));
  });
  Harness harness(peer);
  for (uint64_t key = 1; key <= 3; key++)
    harness.submit(key, key);
  harness.submit(4, 2); /* behind the one that fails */
  harness.submit(5, 3);
  harness.sink->flush();
  auto ends = harness.wait(5);
  EXPECT_EQ(ends[1].outcome, Outcome::Sent);
  EXPECT_EQ(ends[2].outcome, Outcome::Retry);
  EXPECT_EQ(ends[2].error, "busy");
  EXPECT_EQ(ends[2].retry_after_ms, 700);
  EXPECT_EQ(ends[2].reason, OB_REASON_HTTP_5XX);
  EXPECT_EQ(ends[3].outcome, Outcome::Sent);
  EXPECT_EQ(ends[4].outcome, Outcome::Returned);
  EXPECT_EQ(ends[5].outcome, Outcome::Sent);
}

/* A peer that throttles would else see a new connection for each attempt. */
TEST(HttpSender, TellsWhatThePeerHasAnsweredWhereThatIsKept) {
  FaultServer peer([&](const HttpRequest &request, Server &to) {
    return to.answer(200, {}, std::string("srs").substr(0, lines_of(request).size()));
  });
  Harness harness(peer);
  EXPECT_EQ(harness.send(1)[1].acknowledgement, "") << "nobody has asked for it";
  harness.sink->keep_acknowledgements(true);
  for (uint64_t ticket = 2; ticket <= 4; ticket++)
    harness.submit(ticket, ticket);
  harness.sink->flush();
  auto ends = harness.wait(4);
  EXPECT_EQ(ends[2].acknowledgement, "line of 2");
  EXPECT_EQ(ends[3].outcome, Outcome::Retry);
  EXPECT_EQ(ends[3].acknowledgement, "");
  EXPECT_EQ(ends[4].acknowledgement, "line of 4");
}

TEST(HttpSender, AFailureThatWasAnsweredLeavesTheConnectionInUse) {
  std::atomic<int> answers{0};
  FaultServer peer([&](const HttpRequest &, Server &to) { return to.answer(200, {}, answers++ < 3 ? "r" : "s"); });
  Harness harness(peer);
  for (uint64_t attempt = 1; attempt <= 4; attempt++) {
    TestEvent event(attempt, 1);
    event.event.position = 1;
    event.event.failed = attempt > 1;
    ASSERT_TRUE(harness.sink->submit(event.get()));
    harness.sink->flush();
    harness.wait(attempt);
  }
  EXPECT_EQ(answers, 4);
  EXPECT_EQ(peer.connections(), 1);
}

TEST(HttpSender, AnAnswerConcernsOneSubmission) {
  PeerHistory history;
  TestEvent event(1, 1);
  history.answered_events.add(1);
  EXPECT_EQ(kept_connection_for(event.get(), history), KeptConnection::FREE) << "a redriven event has not failed";
  event.event.failed = true;
  EXPECT_EQ(kept_connection_for(event.get(), history), KeptConnection::NONE) << "it failed without an answer";
  for (int64_t dead = 1; dead <= 501; dead++)
    history.answered_events.add(dead);
  EXPECT_FALSE(history.answered_events.take(1)) << "dead letters do not remain for ever";
}

TEST(HttpSender, SendsEachAloneIfAnyMayBeToBlame) {
  std::mutex mutex;
  std::vector<size_t> sizes;
  FaultServer peer([&](const HttpRequest &request, Server &to) {
    std::lock_guard lock(mutex);
    size_t n = lines_of(request).size();
    sizes.push_back(n);
    return to.answer(n > 1 ? 400 : 200, {}, n > 1 ? "alone" : request.body == "2 2\n" ? "r" : "s");
  });
  Harness harness(peer);
  auto ends = harness.send(3);
  EXPECT_EQ(ends[1].outcome, Outcome::Sent);
  EXPECT_EQ(ends[2].outcome, Outcome::Retry);
  EXPECT_EQ(ends[3].outcome, Outcome::Sent);
  EXPECT_EQ(sizes, (std::vector<size_t>{3, 2, 1, 1, 1}));
}

TEST(HttpSender, AMessageThatBreaksTheConnectionSpendsNoAttemptOfOthers) {
  FaultServer peer([&](const HttpRequest &request, Server &to) {
    const Lines lines = lines_of(request);
    return std::count(lines.begin(), lines.end(), "2 2") == 0 && to.answer(200, {}, all_sent(request));
  });
  Harness harness(peer);
  auto ends = harness.send(3);
  EXPECT_EQ(ends[1].outcome, Outcome::Sent);
  EXPECT_EQ(ends[2].outcome, Outcome::RetryBlameSink);
  EXPECT_EQ(ends[3].outcome, Outcome::Sent);
  EXPECT_TRUE(ends[2].unanswered);
  EXPECT_EQ(harness.reporter->unanswered(), 5u) << "in requests of three and of two";
}

TEST(HttpSender, AMessageThatWasNotSentIsNotUnanswered) {
  Harness harness(std::make_shared<LineProtocol>("http://127.0.0.1:1"));
  EXPECT_FALSE(harness.send(1)[1].unanswered);
}

TEST(HttpSender, AMessageThatHasFailedIsSentAlone) {
  std::mutex mutex;
  std::multiset<std::string> requests;
  FaultServer peer([&](const HttpRequest &request, Server &to) {
    std::lock_guard lock(mutex);
    requests.insert(request.body);
    return to.answer(200, {}, all_sent(request));
  });
  Harness harness(peer);
  for (uint64_t ticket = 1; ticket <= 6; ticket++) {
    TestEvent event(ticket, ticket);
    event.event.failed = ticket == 2 || ticket == 3;
    ASSERT_TRUE(harness.sink->submit(event.get()));
  }
  harness.sink->flush();
  for (auto &[ticket, end] : harness.wait(6))
    EXPECT_EQ(end.outcome, Outcome::Sent) << ticket;
  EXPECT_EQ(requests, (std::multiset<std::string>{"1 1\n", "2 2\n", "3 3\n", "4 4\n5 5\n6 6\n"}));
}

TEST(HttpSender, ARequestIsNotHeavierThanAllowed) {
  std::mutex mutex;
  std::multiset<size_t> sizes;
  FaultServer peer([&](const HttpRequest &request, Server &to) {
    std::lock_guard lock(mutex);
    sizes.insert(lines_of(request).size());
    return to.answer(200, {}, all_sent(request));
  });
  auto protocol = std::make_shared<LineProtocol>(peer.url());
  protocol->weight = 9; /* two lines */
  Harness harness(protocol);
  for (auto &[ticket, end] : harness.send(5))
    EXPECT_EQ(end.outcome, Outcome::Sent);
  EXPECT_EQ(sizes, (std::multiset<size_t>{1, 2, 2}));
}

TEST(HttpSender, ASinkThatIsDownGetsNothingMore) {
  FaultServer peer([&](const HttpRequest &request, Server &to) {
    return to.answer(200, {}, std::string(lines_of(request).size(), 'd'));
  });
  auto protocol = std::make_shared<LineProtocol>(peer.url());
  protocol->most = protocol->concurrency = 1;
  Harness harness(protocol);
  auto ends = harness.send(4);
  EXPECT_EQ(ends[1].outcome, Outcome::SinkDown);
  EXPECT_EQ(ends[1].error, "closed today");
  for (uint64_t ticket = 2; ticket <= 4; ticket++)
    EXPECT_EQ(ends[ticket].outcome, Outcome::Returned);
  EXPECT_EQ(peer.requests(), 1);
}

TEST(HttpSender, AHangIsATimeout) {
  FaultServer peer([&](const HttpRequest &, Server &to) { return to.hang(); });
  auto protocol = std::make_shared<LineProtocol>(peer.url());
  protocol->timeout = milliseconds(200);
  Harness harness(protocol);
  auto ends = harness.send(1);
  EXPECT_EQ(ends[1].outcome, Outcome::RetryBlameSink);
  EXPECT_EQ(ends[1].reason, OB_REASON_TIMEOUT);
}

TEST(HttpSender, ARefusedConnectionIsAnOutage) {
  DeadPort dead;
  auto protocol = std::make_shared<LineProtocol>(dead.url);
  protocol->most = protocol->concurrency = 1;
  Harness harness(protocol);
  auto ends = harness.send(2);
  EXPECT_EQ(ends[1].outcome, Outcome::SinkDown);
  EXPECT_EQ(ends[1].reason, OB_REASON_CONNECTION);
  EXPECT_EQ(ends[2].outcome, Outcome::Returned);
}

TEST(HttpSender, TheGuardRefusesAPrivateAddress) {
  FaultServer peer([&](const HttpRequest &request, Server &to) { return to.answer(200, {}, all_sent(request)); });
  auto protocol = std::make_shared<LineProtocol>(peer.url());
  protocol->guard = NetworkGuard({});
  Harness harness(protocol);
  auto ends = harness.send(1);
  EXPECT_EQ(ends[1].outcome, Outcome::SinkDown);
  EXPECT_EQ(ends[1].reason, OB_REASON_BLOCKED);
  EXPECT_EQ(peer.connections(), 0);
}

TEST(HttpSender, ClosesInTheMiddle) {
  std::atomic<int> hanging{0};
  FaultServer peer([&](const HttpRequest &, Server &to) {
    ++hanging;
    return to.hang();
  });
  auto begin = Clock::now();
  auto until_hanging = [&](int n) {
    for (auto end = patience_ends(std::chrono::seconds(60)); hanging < n && Clock::now() < end;)
      std::this_thread::sleep_for(milliseconds(1));
  };
  {
    auto protocol = std::make_shared<LineProtocol>(peer.url());
    protocol->timeout = std::chrono::minutes(5);
    protocol->most = 1;
    Harness harness(protocol);
    for (uint64_t n = 1; n <= 6; n++)
      harness.submit(n, n <= 3 ? 1 : n);
    harness.sink->flush();
    until_hanging(2);
    harness.sink->release_queued();
    std::set<uint64_t> released;
    for (auto &[ticket, end] : harness.wait(4)) {
      EXPECT_EQ(end.outcome, Outcome::Returned);
      released.insert(ticket);
    }
    EXPECT_EQ(released, (std::set<uint64_t>{2, 3, 5, 6}));
    harness.sink->abandon();
    EXPECT_EQ(harness.reporter->completions().size(), 6u); /* at once */
  }
  {
    Harness harness(peer);
    harness.submit(1, 1);
    harness.sink->flush();
    until_hanging(3);
  } /* destroyed with a request in flight: nothing is reported, nothing hangs */
  EXPECT_LT(Clock::now() - begin, std::chrono::seconds(60));
}

TEST(HttpSender, KeepsARateLimitAndItsPartOfTheConcurrency) {
  std::atomic<int> at_once{0}, most_at_once{0};
  FaultServer peer([&](const HttpRequest &request, Server &to) {
    most_at_once = std::max<int>(most_at_once, ++at_once);
    std::this_thread::sleep_for(milliseconds(5));
    at_once--;
    return to.answer(200, {}, all_sent(request));
  });
  auto protocol = std::make_shared<LineProtocol>(peer.url());
  protocol->most = 1;
  protocol->rate = parse_rate("rate_limit", "1/1h");
  Harness limited(protocol);
  EXPECT_EQ(limited.sink->credit(), 1u);
  limited.send(1);
  EXPECT_EQ(limited.sink->credit(), 0u);
  EXPECT_GT(limited.sink->credit_at(), Clock::now() + std::chrono::minutes(50));

  Harness one_of_two(peer);
  one_of_two.sink->share(0, 2, nullptr);
  most_at_once = 0;
  one_of_two.send(20);
  EXPECT_EQ(most_at_once, 1) << "half of two";
}

TEST(HttpSender, APeerThatAsksForAPauseGetsNothingUntilItIsOver) {
  std::atomic<int> requests{0};
  std::atomic<char> answer{'t'};
  FaultServer peer([&](const HttpRequest &request, Server &to) {
    requests++;
    return to.answer(200, {}, std::string(lines_of(request).size(), answer));
  });
  auto protocol = std::make_shared<LineProtocol>(peer.url());
  protocol->most = protocol->concurrency = 1;
  protocol->pause_ms = 3'600'000;
  Harness harness(protocol);
  auto ends = harness.send(4);
  EXPECT_EQ(ends[1].outcome, Outcome::RetryBlameSink);
  for (uint64_t ticket = 2; ticket <= 4; ticket++)
    EXPECT_EQ(ends[ticket].outcome, Outcome::Returned) << ends[ticket].error;
  EXPECT_EQ(requests, 1);
  EXPECT_EQ(harness.sink->credit(), 0u);
  EXPECT_GT(harness.sink->paused_until(), Clock::now() + std::chrono::minutes(50));
  answer = 's';
  harness.sink->end_pause();
  EXPECT_LT(harness.sink->paused_until(), Clock::now());
  harness.submit(5, 5);
  harness.sink->flush();
  EXPECT_EQ(harness.wait(5)[5].outcome, Outcome::Sent);
}

TEST(HttpSender, APauseIsNotLongerThanAllowed) {
  std::atomic<char> answer{'t'};
  FaultServer peer([&](const HttpRequest &, Server &to) { return to.answer(200, {}, std::string(1, answer)); });
  auto protocol = std::make_shared<LineProtocol>(peer.url());
  protocol->pause_ms = 3'600'000;
  protocol->max_pause = milliseconds(1000);
  Harness harness(protocol);
  harness.send(1);
  EXPECT_LT(harness.sink->paused_until(), Clock::now() + milliseconds(1001));
  EXPECT_LT(harness.sink->credit_at(), Clock::now() + milliseconds(1001));
  answer = 's';
  for (const auto ends = patience_ends(milliseconds(10'000)); harness.sink->credit() == 0 && Clock::now() < ends;)
    std::this_thread::sleep_for(milliseconds(1));
  harness.submit(2, 2);
  harness.sink->flush();
  EXPECT_EQ(harness.wait(2)[2].outcome, Outcome::Sent);
}

TEST(HttpSender, AfterAnOutageItBeginsWithOneRequest) {
  std::atomic<int> at_once{0};
  std::mutex mutex;
  std::condition_variable changed;
  bool go = false;
  FaultServer peer([&](const HttpRequest &request, Server &to) {
    at_once++;
    std::unique_lock lock(mutex);
    changed.wait(lock, [&] { return go; });
    at_once--;
    return to.answer(200, {}, all_sent(request));
  });
  auto protocol = std::make_shared<LineProtocol>(peer.url());
  protocol->most = 1;
  Harness harness(protocol);
  harness.sink->pause();
  for (uint64_t key = 1; key <= 6; key++)
    harness.submit(key, key);
  harness.sink->flush();
  for (const auto ends = patience_ends(milliseconds(10'000)); at_once == 0 && Clock::now() < ends;)
    std::this_thread::sleep_for(milliseconds(1));
  EXPECT_EQ(at_once, 1);
  {
    std::lock_guard lock(mutex);
    go = true;
  }
  changed.notify_all();
  harness.wait(6);
}

TEST(HttpSender, AnswersThatAskForLessNarrowTheWay) {
  std::atomic<int> at_once{0}, most_at_once{0};
  std::atomic<char> answer{'u'};
  FaultServer peer([&](const HttpRequest &, Server &to) {
    most_at_once = std::max<int>(most_at_once, ++at_once);
    std::this_thread::sleep_for(milliseconds(20));
    at_once--;
    return to.answer(200, {}, std::string(1, answer));
  });
  auto protocol = std::make_shared<LineProtocol>(peer.url());
  protocol->most = 1;
  protocol->concurrency = 8;
  Harness harness(protocol);
  harness.send(40);
  EXPECT_GT(most_at_once, 4);
  most_at_once = 0;
  answer = 's';
  for (uint64_t ticket = 41; ticket <= 48; ticket++)
    harness.submit(ticket, ticket);
  harness.sink->flush();
  harness.wait(48);
  EXPECT_LE(most_at_once, 4) << "it rises by one request per round of successes";
}

TEST(HttpSender, AMessageMayHaveAUrlOfItsOwn) {
  Shared<std::string> line;
  FaultServer peer([&](const HttpRequest &request, Server &to) {
    line.set(request.line);
    return to.answer(200, {}, all_sent(request));
  });
  auto protocol = std::make_shared<LineProtocol>(peer.url());
  protocol->most = 1;
  protocol->own_urls = true;
  Harness harness(protocol);
  for (uint64_t key : {7, 8}) {
    harness.submit(key, key);
    harness.sink->flush();
    harness.wait(key - 6);
    EXPECT_EQ(line.get(), "POST /hook/of/" + std::to_string(key) + " HTTP/1.1");
  }
  EXPECT_EQ(peer.connections(), 1);
}

TEST(HttpSender, AfterGoneItIsDisabledAndSendsNothingMore) {
  FaultServer peer([&](const HttpRequest &, Server &to) { return to.answer(410); });
  auto protocol = std::make_shared<LineProtocol>(peer.url());
  protocol->most = protocol->concurrency = 1;
  Harness harness(protocol);
  for (auto &[ticket, end] : harness.send(4))
    EXPECT_EQ(end.outcome, Outcome::Returned) << end.error;
  EXPECT_EQ(harness.reporter->disabled_reason(), "410 Gone");
  EXPECT_EQ(peer.requests(), 1);
}

TEST(HttpSender, WhatBeganBeforeAnOutageSpendsNoAttempt) {
  std::atomic<bool> go{false};
  std::atomic<int> waiting{0};
  FaultServer peer([&](const HttpRequest &, Server &to) {
    ++waiting;
    while (!go)
      std::this_thread::sleep_for(milliseconds(1));
    return to.answer(200, {}, "t");
  });
  auto protocol = std::make_shared<LineProtocol>(peer.url());
  protocol->most = 1;
  Harness harness(protocol);
  harness.submit(1, 1);
  harness.sink->flush();
  for (const auto ends = patience_ends(milliseconds(10'000)); waiting == 0 && Clock::now() < ends;)
    std::this_thread::sleep_for(milliseconds(1));
  harness.sink->pause();
  go = true;
  EXPECT_EQ(harness.wait(1)[1].outcome, Outcome::Returned);
  harness.submit(2, 2);
  harness.sink->flush();
  EXPECT_EQ(harness.wait(2)[2].outcome, Outcome::RetryBlameSink) << "the probe says something new";
}

TEST(HttpSender, RefusalsDoNotWidenTheWayAfterAnOutage) {
  std::atomic<int> at_once{0}, most_at_once{0};
  FaultServer peer([&](const HttpRequest &request, Server &to) {
    most_at_once = std::max<int>(most_at_once, ++at_once);
    std::this_thread::sleep_for(milliseconds(5));
    at_once--;
    return to.answer(200, {}, std::string(lines_of(request).size(), 'r'));
  });
  auto protocol = std::make_shared<LineProtocol>(peer.url());
  protocol->most = 1;
  Harness harness(protocol);
  harness.sink->pause();
  harness.send(10);
  EXPECT_EQ(most_at_once, 1);
}

namespace {

/* Requests carry a token that is granted for a time. */
class HttpSenderGrant : public testing::Test {
protected:
  HttpSenderGrant() {
    protocol->needs_grant = true;
    protocol->most = 1;
  }
  void grant(HttpGrant now) {
    protocol->granted.set(std::move(now));
    harness->reporter->wake();
  }
  static HttpGrant token(const char *text) { return {std::make_shared<std::string>(text), {}}; }

  Shared<std::string> accepted{"first"}, carried;
  FaultServer peer{[this](const HttpRequest &request, Server &to) {
    carried.set(request.headers.at("x-grant"));
    const bool right = carried.get() == accepted.get();
    return right ? to.answer(200, {}, all_sent(request)) : to.answer(401);
  }};
  std::shared_ptr<LineProtocol> protocol = std::make_shared<LineProtocol>(peer.url());
  std::unique_ptr<Harness> harness = std::make_unique<Harness>(protocol);
};

TEST_F(HttpSenderGrant, NothingIsSentBeforeTheFirstOne) {
  for (uint64_t key = 1; key <= 3; key++)
    harness->submit(key, key);
  harness->sink->flush();
  std::this_thread::sleep_for(milliseconds(20));
  harness->sink->poll();
  EXPECT_EQ(peer.requests(), 0);
  grant(token("first"));
  for (auto &[ticket, end] : harness->wait(3))
    EXPECT_EQ(end.outcome, Outcome::Sent) << end.error;
  EXPECT_EQ(carried.get(), "first");
}

TEST_F(HttpSenderGrant, WhatWaitsForItCanBeTakenBack) {
  harness->submit(1, 1);
  harness->sink->flush();
  std::this_thread::sleep_for(milliseconds(20));
  harness->sink->release_queued();
  EXPECT_EQ(harness->wait(1)[1].outcome, Outcome::Returned);
}

TEST_F(HttpSenderGrant, WhileThereIsNoneTheSinkIsDown) {
  grant({nullptr, "the client is unknown"});
  harness->submit(1, 1);
  harness->submit(2, 1);
  harness->sink->flush();
  auto ends = harness->wait(2);
  EXPECT_EQ(ends[1].outcome, Outcome::SinkDown);
  EXPECT_EQ(ends[1].error, "the client is unknown");
  EXPECT_EQ(ends[1].reason, OB_REASON_AUTH);
  EXPECT_EQ(ends[2].outcome, Outcome::Returned);
  EXPECT_EQ(peer.requests(), 0);
}

TEST_F(HttpSenderGrant, ARefusalCountsOnlyIfItComesAgainWithAnother) {
  grant(token("withdrawn"));
  harness->submit(1, 1);
  harness->submit(2, 2);
  harness->sink->flush();
  for (auto &[ticket, end] : harness->wait(2))
    EXPECT_EQ(end.outcome, Outcome::Returned) << end.error;
  EXPECT_GE(protocol->refusals, 1);
  grant(token("first"));
  harness->submit(3, 1);
  harness->sink->flush();
  EXPECT_EQ(harness->wait(3)[3].outcome, Outcome::Sent);

  grant(token("withdrawn too"));
  harness->submit(4, 1);
  harness->sink->flush();
  EXPECT_EQ(harness->wait(4)[4].outcome, Outcome::Returned);
  grant(token("wrong"));
  harness->submit(5, 1);
  harness->sink->flush();
  auto again = harness->wait(5)[5];
  EXPECT_EQ(again.outcome, Outcome::Refused) << again.error;
}

}  // namespace
