/* Requests with several messages (http_sender.h), of which one is to blame. */
#include "line_protocol.h"
#include "patience.h"

using namespace outbox;
using std::chrono::milliseconds;
using Server = FaultServer::Peer;

namespace {

/* Notes the requests in the order in which they arrive, and that no two of them run at once. */
class HttpBatches : public testing::Test {
protected:
  using Answer = std::function<std::string(const Lines &)>;

  void open(Answer answer, size_t most = 8) {
    answer_ = std::move(answer);
    peer = std::make_unique<FaultServer>([this](const HttpRequest &request, Server &to) {
      std::lock_guard lock(mutex_);
      requests_.push_back(lines_of(request));
      const std::string text = answer_ ? answer_(requests_.back()) : "";
      return text != "break" && to.answer(200, {}, text.empty() ? all_sent(request) : text);
    });
    protocol = std::make_shared<LineProtocol>(peer->url());
    protocol->most = most;
    protocol->runs = true;
    protocol->concurrency = 1;
  }
  Harness &start() {
    harness = std::make_unique<Harness>(protocol);
    return *harness;
  }
  /* Submits an event, and waits until the sender has looked at it. */
  void submit_alone(uint64_t ticket, uint64_t key) {
    const int asked = protocol->grants_asked;
    harness->submit(ticket, key);
    harness->sink->flush();
    for (auto end = patience_ends(std::chrono::seconds(10)); protocol->grants_asked == asked;) {
      ASSERT_LT(std::chrono::steady_clock::now(), end);
      std::this_thread::yield();
    }
  }
  std::vector<Lines> requests() {
    std::lock_guard lock(mutex_);
    return requests_;
  }
  static bool has(const Lines &lines, const std::string &line) {
    return std::find(lines.begin(), lines.end(), line) != lines.end();
  }

private:
  std::mutex mutex_;
  std::vector<Lines> requests_;
  Answer answer_;

protected:
  std::unique_ptr<FaultServer> peer;
  std::shared_ptr<LineProtocol> protocol;
  std::unique_ptr<Harness> harness;
};

TEST_F(HttpBatches, ARequestCarriesARunOfAKey) {
  open({});
  Harness &to = start();
  for (uint64_t ticket = 1; ticket <= 4; ticket++)
    to.submit(ticket, 7);
  to.submit(5, 8);
  to.sink->flush();
  for (auto &[ticket, end] : to.wait(5))
    EXPECT_EQ(end.outcome, Outcome::Sent) << ticket;
  EXPECT_EQ(requests(), (std::vector<Lines>{{"7 1", "7 2", "7 3", "7 4", "8 5"}}));
}

TEST_F(HttpBatches, ALaterRunWaitsForTheEndOfTheFormer) {
  open({}, 2);
  protocol->concurrency = 2;
  Harness &to = start();
  for (uint64_t ticket = 1; ticket <= 5; ticket++)
    to.submit(ticket, 7);
  to.sink->flush();
  to.wait(5);
  EXPECT_EQ(requests(), (std::vector<Lines>{{"7 1", "7 2"}, {"7 3", "7 4"}, {"7 5"}}));
}

TEST_F(HttpBatches, TheRefusedMessageIsFoundByHalving) {
  open([](const Lines &lines) { return has(lines, "6 6") ? "refused" : ""; });
  auto ends = start().send(8);
  for (uint64_t ticket = 1; ticket <= 8; ticket++)
    EXPECT_EQ(ends[ticket].outcome, ticket == 6 ? Outcome::Retry : Outcome::Sent) << ticket;
  std::vector<size_t> sizes;
  for (const Lines &lines : requests())
    sizes.push_back(lines.size());
  EXPECT_EQ(sizes, (std::vector<size_t>{8, 4, 4, 2, 1, 1, 2}));
}

TEST_F(HttpBatches, WhatFollowsARefusedMessageOfItsKeyIsNotSentBeforeIt) {
  open([](const Lines &lines) { return has(lines, "7 2") ? "refused" : ""; });
  protocol->concurrency = 4; /* the parts could be sent at once */
  Harness &to = start();
  for (uint64_t ticket = 1; ticket <= 6; ticket++)
    to.submit(ticket, ticket == 4 ? 8 : 7);
  to.submit(7, 7);
  to.sink->flush();
  auto ends = to.wait(7);
  EXPECT_EQ(ends[1].outcome, Outcome::Sent);
  EXPECT_EQ(ends[2].outcome, Outcome::Retry);
  EXPECT_EQ(ends[4].outcome, Outcome::Sent);
  for (uint64_t ticket : {3, 5, 6, 7})
    EXPECT_EQ(ends[ticket].outcome, Outcome::Returned) << ticket;
  for (const Lines &lines : requests()) {
    EXPECT_TRUE(has(lines, "7 2") || !has(lines, "7 3")) << "after the refusal";
  }
}

TEST_F(HttpBatches, AMessageThatBreaksTheConnectionIsFoundByHalving) {
  open([](const Lines &lines) { return has(lines, "3 3") ? "break" : ""; });
  auto ends = start().send(8);
  for (uint64_t ticket = 1; ticket <= 8; ticket++)
    EXPECT_EQ(ends[ticket].outcome, ticket == 3 ? Outcome::RetryBlameSink : Outcome::Sent) << ticket;
  EXPECT_LE(requests().size(), 8u);
}

/* Two keys that fail open the circuit if nothing else succeeds: each request counts as one. */
TEST_F(HttpBatches, OfARequestThatFailsOneMessagePays) {
  std::atomic<bool> ill{true};
  open([&](const Lines &) { return ill.exchange(false) ? "ill" : ""; });
  auto ends = start().send(8);
  EXPECT_EQ(ends[1].outcome, Outcome::RetryBlameSink);
  for (uint64_t ticket = 2; ticket <= 8; ticket++)
    EXPECT_EQ(ends[ticket].outcome, Outcome::Sent) << ticket;
}

TEST_F(HttpBatches, InAnOutageTheOthersAreReturned) {
  std::atomic<HttpSender *> sink{nullptr};
  std::atomic<int> answers{0};
  open([&](const Lines &) {
    if (answers++ == 0)
      sink.load()->pause(); /* the circuit opens while the request is in flight */
    return "refused";
  });
  Harness &to = start();
  sink = to.sink.get();
  auto ends = to.send(8);
  for (uint64_t ticket = 1; ticket <= 8; ticket++)
    EXPECT_EQ(ends[ticket].outcome, Outcome::Returned) << ticket;
  EXPECT_EQ(answers, 1);
}

TEST_F(HttpBatches, PartsThatWaitAreReturnedInAnOutage) {
  std::atomic<HttpSender *> sink{nullptr};
  std::atomic<int> answers{0};
  open([&](const Lines &) {
    if (answers++ == 2)
      sink.load()->pause();
    return "ill";
  });
  Harness &to = start();
  sink = to.sink.get();
  auto ends = to.send(8);
  EXPECT_EQ(std::count_if(ends.begin(), ends.end(),
                          [](auto &end) { return end.second.outcome == Outcome::RetryBlameSink; }),
            2);
  EXPECT_EQ(answers, 3);
}

TEST_F(HttpBatches, ARequestThatIsTooLargeMakesTheNextOnesSmaller) {
  open([](const Lines &lines) { return lines.size() > 2 ? "too large" : ""; });
  Harness &to = start();
  for (auto &[ticket, end] : to.send(8))
    EXPECT_EQ(end.outcome, Outcome::Sent) << ticket;
  const size_t first = requests().size();
  for (uint64_t ticket = 11; ticket <= 18; ticket++)
    to.submit(ticket, ticket);
  to.sink->flush();
  to.wait(16);
  for (size_t i = first; i < requests().size(); i++)
    EXPECT_LE(requests()[i].size(), 2u);
}

TEST_F(HttpBatches, ARequestWaitsForMoreMessages) {
  open({}, 4);
  protocol->collects = std::chrono::seconds(60);
  start();
  for (uint64_t ticket = 1; ticket <= 4; ticket++)
    submit_alone(ticket, ticket % 2 ? 7 : ticket);
  harness->wait(4);
  EXPECT_EQ(requests(), (std::vector<Lines>{{"7 1", "2 2", "7 3", "4 4"}}));
}

TEST_F(HttpBatches, WhatWaitsForMoreIsTakenBackWhenTheSinkCloses) {
  open({}, 4);
  protocol->collects = std::chrono::seconds(60);
  start();
  submit_alone(1, 1); /* after the second one it waits in a request */
  submit_alone(2, 2);
  harness->sink->release_queued();
  for (auto &[ticket, end] : harness->wait(2))
    EXPECT_EQ(end.outcome, Outcome::Returned) << ticket;
  EXPECT_TRUE(requests().empty());
}

}  // namespace
