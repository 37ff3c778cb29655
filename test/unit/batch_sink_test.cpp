/* BatchSink: one batch in flight, the order after a failure, and a close during a batch. */
#include <gtest/gtest.h>

#include <semaphore>

#include "delivery/engine/batch_sink.h"
#include "webhook_fixture.h"

using namespace outbox;

namespace {

using Ends = std::vector<std::pair<uint64_t, Outcome>>;

class BatchSinkTest : public testing::Test {
protected:
  /* Event 1 is in flight, so that the following events are one batch. */
  void SetUp() override {
    submit(1, 1);
    begun.acquire();
  }
  void TearDown() override { answered.release(2); }
  void submit(uint64_t from, uint64_t to) {
    for (uint64_t ticket = from; ticket <= to; ticket++)
      ASSERT_TRUE(sink->submit(TestEvent(ticket, 1, std::to_string(ticket)).get()));
    sink->flush();
  }
  /* The peer's result for the batch in flight. */
  void answer(std::function<BatchSink::Outcome()> outcome) {
    next.set(std::move(outcome));
    answered.release();
  }
  /* How many events have ended in this way. */
  Ends collect(size_t n) {
    Ends found;
    for (const Completion &completion : wait_for(*sink, *reporter, n))
      found.emplace_back(completion.ticket, completion.outcome);
    return found;
  }

  std::counting_semaphore<> begun{0}, answered{0};
  Shared<std::function<BatchSink::Outcome()>> next{[] { return BatchSink::Outcome::sent(); }};
  Shared<std::vector<std::string>> batch;
  std::shared_ptr<RecordingReporter> reporter = std::make_shared<RecordingReporter>();
  std::unique_ptr<BatchSink> sink = std::make_unique<BatchSink>(
      reporter, [](const ob_event &event) { return std::string(view(event.payload)); },
      [this](const std::vector<std::string> &messages) {
        batch.set(messages);
        begun.release();
        answered.acquire();
        return next.get()();
      },
      10);
};

TEST_F(BatchSinkTest, WhatWaitsIsTheNextBatchInItsOrder) {
  submit(2, 4);
  EXPECT_EQ(sink->credit(), 7u);
  answer([] { return BatchSink::Outcome::sent(); });
  EXPECT_EQ(collect(1), (Ends{{1, Outcome::Sent}}));
  begun.acquire();
  EXPECT_EQ(batch.get(), (std::vector<std::string>{"2", "3", "4"}));
  EXPECT_EQ(sink->credit(), 10u);
  answer([] { return BatchSink::Outcome::sent(); });
  EXPECT_EQ(collect(4), (Ends{{1, Outcome::Sent}, {2, Outcome::Sent}, {3, Outcome::Sent}, {4, Outcome::Sent}}));
}

TEST_F(BatchSinkTest, ItTellsWhatThePeerHasAnsweredForEach) {
  submit(2, 3);
  answer([] { return BatchSink::Outcome::sent(); });
  collect(1);
  begun.acquire();
  answer([] { return BatchSink::Outcome::sent({"at byte 0", "at byte 7"}); });
  collect(3);
  std::vector<std::string> told;
  for (const Completion &each : reporter->completions())
    told.push_back(each.acknowledgement);
  EXPECT_EQ(told, (std::vector<std::string>{"", "at byte 0", "at byte 7"}));
}

TEST_F(BatchSinkTest, ItTakesNoMoreThanItsCredit) {
  submit(2, 11);
  EXPECT_EQ(sink->credit(), 0u);
  EXPECT_FALSE(sink->submit(TestEvent(12, 1).get()));
}

TEST_F(BatchSinkTest, WhatFailsIsOvertakenByNothing) {
  submit(2, 4); /* queued meanwhile */
  answer([] { return BatchSink::Outcome::failed(0, BatchSink::Failure::Retry, "not now"); });
  pollfd readable{reporter->wake_fd(), POLLIN, 0};
  ASSERT_EQ(::poll(&readable, 1, 20'000), 1);
  EXPECT_EQ(sink->credit(), 0u) << "a failure that nobody has been told of";
  EXPECT_FALSE(sink->submit(TestEvent(5, 1).get()));
  EXPECT_TRUE(reporter->completions().empty()) << "only the main thread tells of it";

  EXPECT_EQ(collect(4),
            (Ends{{1, Outcome::Retry}, {2, Outcome::Returned}, {3, Outcome::Returned}, {4, Outcome::Returned}}));
  EXPECT_EQ(reporter->completions()[0].error, "not now");
  EXPECT_EQ(sink->credit(), 10u);
}

TEST_F(BatchSinkTest, WhatStandsBeforeTheFailingOneWasSent) {
  submit(2, 4);
  answer([] { return BatchSink::Outcome::sent(); });
  collect(1);
  begun.acquire();
  answer([] { return BatchSink::Outcome::failed(1, BatchSink::Failure::Rejected, "never"); });
  EXPECT_EQ(collect(4), (Ends{{1, Outcome::Sent}, {2, Outcome::Sent}, {3, Outcome::Retry}, {4, Outcome::Returned}}));
  EXPECT_EQ(reporter->completions()[2].max_refusals, 1)
      << "a dead letter at once, unless the peer refuses everything";
}

TEST_F(BatchSinkTest, WhatIsThrownIsNoEventsFault) {
  answer([]() -> BatchSink::Outcome { throw std::runtime_error("no peer"); });
  EXPECT_EQ(collect(1), (Ends{{1, Outcome::SinkDown}}));
  EXPECT_EQ(reporter->completions()[0].error, "no peer");
}

/* A message is either delivered or failed; there is no third result. */
static_assert(!std::is_aggregate_v<BatchSink::Outcome> && !std::is_default_constructible_v<BatchSink::Outcome> &&
              !std::is_constructible_v<BatchSink::Outcome, size_t>);
static_assert(!std::is_invocable_v<decltype(BatchSink::Outcome::failed), size_t, Outcome, std::string>,
              "Outcome has ways to end that are no failures");

TEST_F(BatchSinkTest, AnEndInTheMiddleReportsEachEventOnce) {
  submit(2, 3);
  sink->release_queued();
  EXPECT_EQ(collect(2), (Ends{{2, Outcome::Returned}, {3, Outcome::Returned}}));
  sink->abandon();
  Ends all{{2, Outcome::Returned}, {3, Outcome::Returned}, {1, Outcome::Returned}};
  EXPECT_EQ(collect(3), all);
  answer([] { return BatchSink::Outcome::sent(); }); /* too late */
  sink.reset();
  EXPECT_EQ(reporter->completions().size(), 3u);
}

}  // namespace
