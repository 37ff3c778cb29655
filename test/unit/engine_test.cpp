/* The whole delivery API with the memory kind of sink: open, submit, collect, the circuit, close. */
#include <gtest/gtest.h>

#include <algorithm>
#include <csignal>
#include <map>
#include <system_error>
#include <thread>

#include <pthread.h>

#include "delivery/engine/background_jobs.h"
#include "delivery/options/options.h"
#include "door.h"
#include "memory_sink.h"
#include "patience.h"

using memory::control;
using outbox::Outcome;

namespace {

class EngineTest : public testing::Test {
protected:
  void SetUp() override { control("main") = {}; }

  ob_sink *open(const door::OptionList &options = {}) {
    ob_sink *sink = engine.open("memory", options);
    EXPECT_NE(sink, nullptr) << engine.error.message;
    return sink;
  }
  bool submit(ob_sink *sink, uint64_t ticket) {
    door::Event event;
    event.ticket = ticket;
    event.key = "key " + std::to_string(ticket);
    return engine.submit(sink, event);
  }
  void end(uint64_t ticket, Outcome outcome, std::string error = {}) { control("main").end(ticket, outcome, error); }

  door::Engine engine;
};

TEST_F(EngineTest, EveryResultBecomesACompletion) {
  ob_sink *sink = open();
  for (uint64_t ticket = 1; ticket <= 5; ticket++)
    ASSERT_TRUE(submit(sink, ticket));
  EXPECT_EQ(engine.status(sink).credit, 95u);
  EXPECT_FALSE(engine.wait(0)) << "nothing to collect yet";

  end(1, Outcome::Sent);
  end(2, Outcome::Retry, "again later");
  end(3, Outcome::RetryBlameSink, "HTTP 500");
  end(4, Outcome::Rejected, "never");
  end(5, Outcome::Returned);
  EXPECT_TRUE(engine.wait(0));
  engine.collect();
  EXPECT_FALSE(engine.wait(0)) << "the descriptor is quiet again";

  ASSERT_EQ(engine.done.size(), 5u);
  const ob_outcome outcomes[] = {OB_SENT, OB_RETRY, OB_RETRY, OB_REJECTED, OB_RETURNED};
  const char *errors[] = {"", "again later", "HTTP 500", "never", ""};
  for (size_t i = 0; i < 5; i++) {
    EXPECT_EQ(engine.done[i].ticket, i + 1);
    EXPECT_EQ(engine.done[i].outcome, outcomes[i]);
    EXPECT_EQ(engine.done[i].error, errors[i]);
  }
}

/* The delay of a peer neither uses up all attempts at once nor puts an event off for ever. */
TEST_F(EngineTest, TheDelayThatAPeerAsksForIsBounded) {
  const std::map<int64_t, int64_t> delays = {{-1, -1},
                                             {0, -1},
                                             {10, -1},
                                             {999, -1},
                                             {1000, 1000},
                                             {3'600'000, 3'600'000},
                                             {3'600'001, 3'600'000},
                                             {INT64_MAX, 3'600'000}};
  ob_sink *sink = open();
  for (auto [asked, expected] : delays) {
    ASSERT_TRUE(submit(sink, 1));
    control("main").end(1, Outcome::Retry, "HTTP 400", asked);
    ob_completion out;
    ASSERT_EQ(ob_collect(engine.raw(), &out, 1), 1u);
    EXPECT_EQ(out.retry_after_ms, expected) << asked;
  }
}

TEST_F(EngineTest, FailuresBeforeTheOpeningAreSuspectAndTheSinkPausesOnce) {
  ob_sink *sink = open();
  ob_completion out[20];
  for (uint64_t ticket = 1; ticket <= 12; ticket++)
    ASSERT_TRUE(submit(sink, ticket));
  for (uint64_t ticket = 1; ticket <= 11; ticket++)
    end(ticket, Outcome::RetryBlameSink, "HTTP 503");
  end(12, Outcome::Retry, "HTTP 400");
  ASSERT_EQ(ob_collect(engine.raw(), out, 20), 12u);
  for (int i = 0; i < 9; i++) {
    EXPECT_EQ(out[i].outcome, OB_RETRY);
    EXPECT_TRUE(out[i].suspect);
  }
  for (int i = 9; i < 12; i++) {
    EXPECT_EQ(out[i].outcome, OB_RETURNED) << "a refusal of one event is no sign that the sink takes others";
    EXPECT_FALSE(out[i].suspect);
  }
  EXPECT_EQ(control("main").pauses, 1);
}

TEST_F(EngineTest, TakesNoMoreThanTheSinkHolds) {
  ob_sink *sink = open({{"capacity", "3"}});
  std::vector<door::Event> events(5);
  std::vector<ob_event> raw;
  for (auto &event : events)
    raw.push_back(event.raw());
  for (size_t i = 0; i < 5; i++)
    raw[i].ticket = i + 1;
  EXPECT_EQ(sink->kind->submit(sink, raw.data(), 5), 3u);
  EXPECT_EQ(engine.status(sink).credit, 0u);
  EXPECT_EQ(engine.status(sink).retry_in_ms, -1);
  end(1, Outcome::Sent);
  EXPECT_EQ(engine.status(sink).credit, 1u);
}

TEST_F(EngineTest, WithoutMemoryItSaysSoAndHandsOutNothingMore) {
  ob_sink *sink = open();
  submit(sink, 1);
  control("main").no_memory_for = 2;
  door::Event event;
  event.ticket = 2;
  ob_event second = event.raw();
  ASSERT_FALSE(engine.wait(0));
  (void)sink->kind->submit(sink, &second, 1);
  EXPECT_TRUE(engine.wait(0));
  ob_log_line line;
  ASSERT_TRUE(ob_next_log(engine.raw(), &line));
  EXPECT_EQ(line.level, OB_LOG_FATAL);
  end(1, Outcome::Sent);
  ob_completion out[2];
  EXPECT_EQ(ob_collect(engine.raw(), out, 2), 0u);
}

TEST_F(EngineTest, ACollectionThatIsCutShortRingsAgain) {
  ob_sink *sink = open();
  for (uint64_t ticket = 1; ticket <= 3; ticket++)
    submit(sink, ticket);
  for (uint64_t ticket = 1; ticket <= 3; ticket++)
    end(ticket, Outcome::Retry, "error " + std::to_string(ticket));
  ob_completion out[2];
  ASSERT_EQ(ob_collect(engine.raw(), out, 2), 2u);
  EXPECT_EQ(out[0].ticket, 1u);
  EXPECT_STREQ(out[0].error, "error 1");
  EXPECT_STREQ(out[1].error, "error 2");
  EXPECT_TRUE(engine.wait(0));
  ASSERT_EQ(ob_collect(engine.raw(), out, 2), 1u);
  EXPECT_STREQ(out[0].error, "error 3");
}

TEST_F(EngineTest, AnEventThatTheOptionsForbidIsRejected) {
  ob_sink *sink = open();
  door::Event event;
  event.event_type = "forbidden";
  EXPECT_TRUE(engine.submit(sink, event));
  engine.collect();
  ASSERT_EQ(engine.done.size(), 1u);
  EXPECT_EQ(engine.done[0].outcome, OB_REJECTED);
  EXPECT_EQ(engine.done[0].error, "event type is forbidden: The memory sink does not take it.");
}

/* Events in one batch: the key, and whether the options forbid the event. */
struct Batched {
  const char *key;
  bool forbidden = false;
};
class EngineOrder : public EngineTest {
protected:
  size_t submit_all(ob_sink *sink, const std::vector<Batched> &batch) {
    std::vector<door::Event> events(batch.size());
    std::vector<ob_event> raw;
    for (size_t i = 0; i < batch.size(); i++) {
      events[i].ticket = ++last;
      events[i].has_key = *batch[i].key != '\0';
      events[i].key = batch[i].key;
      events[i].event_type = batch[i].forbidden ? "forbidden" : "allowed";
      raw.push_back(events[i].raw());
    }
    return sink->kind->submit(sink, raw.data(), raw.size());
  }
  std::map<uint64_t, ob_outcome> ended() {
    engine.collect();
    std::map<uint64_t, ob_outcome> all;
    for (const door::Done &each : engine.done)
      all[each.ticket] = each.outcome;
    return all;
  }
  using Ended = std::map<uint64_t, ob_outcome>;
  uint64_t last = 0;
};

TEST_F(EngineOrder, WhatIsRejectedAtOnceHoldsItsKeyWhereTheSinkSaysSo) {
  ob_sink *sink = open({{"on_dead_letter", "block"}});
  EXPECT_EQ(submit_all(sink, {{"a"}, {"a", true}, {"a"}, {"b"}, {"", true}, {""}, {"a"}}), 7u);
  EXPECT_EQ(control("main").held, (std::vector<uint64_t>{1, 4, 6}));
  EXPECT_EQ(submit_all(sink, {{"a"}, {"b"}}), 2u) << "nothing of it is collected yet";
  EXPECT_EQ(control("main").held, (std::vector<uint64_t>{1, 4, 6, 9}));
  EXPECT_EQ(ended(),
            (Ended{{2, OB_REJECTED}, {3, OB_RETURNED}, {5, OB_REJECTED}, {7, OB_RETURNED}, {8, OB_RETURNED}}));
  EXPECT_EQ(engine.done.at(1).error, "waits behind a failed event of the same key");
  EXPECT_EQ(submit_all(sink, {{"a"}}), 1u);
  EXPECT_EQ(control("main").held.back(), 10u) << "now its caller knows, and decides";
}

TEST_F(EngineOrder, WhatIsRejectedAtOnceHoldsNothingWhereItsKeyGoesOn) {
  ob_sink *sink = open({{"on_dead_letter", "continue"}});
  EXPECT_EQ(submit_all(sink, {{"a"}, {"a", true}, {"a"}}), 3u);
  EXPECT_EQ(control("main").held, (std::vector<uint64_t>{1, 3}));
  EXPECT_EQ(ended(), (Ended{{2, OB_REJECTED}}));
}

/* A sink ends an event within submit(), with each outcome: the engine, and not the sink, keeps the order. */
TEST_F(EngineOrder, WhatASinkEndsAtOnceIsOvertakenByNothingOfItsKey) {
  ob_sink *sink = open();
  for (Outcome outcome :
       {Outcome::Retry, Outcome::RetryBlameSink, Outcome::Refused, Outcome::Deferred, Outcome::Returned}) {
    control("main").held.clear();
    control("main").ends_at_once[last + 1] = outcome;
    EXPECT_EQ(submit_all(sink, {{"a"}, {"a"}, {"b"}, {"a"}}), 4u);
    EXPECT_EQ(control("main").held, (std::vector<uint64_t>{last - 1})) << static_cast<int>(outcome);
    Ended all = ended();
    EXPECT_EQ(all.at(last - 2), OB_RETURNED);
    EXPECT_EQ(all.at(last), OB_RETURNED);
  }
}

TEST_F(EngineOrder, WhatASinkCannotMakeAMessageOfIsRejectedAndTheRestGoes) {
  ob_sink *sink = open({{"on_dead_letter", "block"}});
  control("main").unfit = 2;
  EXPECT_EQ(submit_all(sink, {{"a"}, {"a"}, {"a"}, {"b"}}), 4u);
  EXPECT_EQ(control("main").held, (std::vector<uint64_t>{1, 4}));
  EXPECT_EQ(ended(), (Ended{{2, OB_REJECTED}, {3, OB_RETURNED}}));
  EXPECT_EQ(engine.done.at(0).error, "event does not fit: It never will.");
}

TEST_F(EngineOrder, ASinkChoosesTheOrderInWhichItTakesEvents) {
  ob_sink *sink = open();
  control("main").order = {2, 0, 3, 1};
  EXPECT_EQ(submit_all(sink, {{"a"}, {"a"}, {"b"}, {"c"}}), 4u);
  EXPECT_EQ(control("main").held, (std::vector<uint64_t>{3, 1, 4, 2}));
  EXPECT_EQ(ended(), Ended{});
}

TEST_F(EngineOrder, WhatASinkDoesNotTakeOfEventsInItsOwnOrderIsReturned) {
  ob_sink *sink = open();
  control("main").order = {2, 0, 3, 1};
  control("main").no_room_for = 1;
  EXPECT_EQ(submit_all(sink, {{"a"}, {"a"}, {"b"}, {"c"}}), 4u);
  EXPECT_EQ(control("main").held, (std::vector<uint64_t>{3}));
  EXPECT_EQ(ended(), (Ended{{1, OB_RETURNED}, {2, OB_RETURNED}, {4, OB_RETURNED}}));
}

TEST_F(EngineOrder, WhatTheCallerCouldNotMakeIsRejectedInItsTurn) {
  ob_sink *sink = open({{"on_dead_letter", "block"}});
  door::Event first, refused, behind;
  std::vector<ob_event> batch;
  for (door::Event *event : {&first, &refused, &behind}) {
    event->ticket = ++last;
    batch.push_back(event->raw());
  }
  batch[1].payload = {nullptr, 0};
  const ob_error too_large = {OB_TOO_LARGE, "", "payload of the event is too large", "It is.", ""};
  batch[1].refused = &too_large;
  EXPECT_EQ(sink->kind->submit(sink, batch.data(), batch.size()), 3u);
  EXPECT_EQ(control("main").held, (std::vector<uint64_t>{1}));
  EXPECT_EQ(ended(), (Ended{{2, OB_REJECTED}, {3, OB_RETURNED}}));
  EXPECT_EQ(engine.done.at(0).error, "payload of the event is too large: It is.");
  ob_sink_status status;
  sink->kind->sink_get_status(sink, &status);
  EXPECT_EQ(status.failures[OB_REASON_TOO_LARGE], 1u);
}

TEST_F(EngineTest, ADownSinkOpensTheCircuitAndAProbeClosesIt) {
  ob_sink *sink = open();
  submit(sink, 1);
  submit(sink, 2);
  end(1, Outcome::SinkDown, "connection refused");
  engine.collect();
  ASSERT_EQ(engine.done.size(), 1u);
  EXPECT_EQ(engine.done[0].outcome, OB_RETURNED);
  ob_sink_status status = engine.status(sink);
  EXPECT_EQ(status.state, OB_SINK_CIRCUIT_OPEN);
  EXPECT_EQ(status.credit, 0u);
  EXPECT_GT(status.retry_in_ms, 0);
  EXPECT_LE(status.retry_in_ms, 200);
  EXPECT_STREQ(status.last_error, "connection refused");
  EXPECT_FALSE(submit(sink, 3));
  EXPECT_NE(engine.log.find("main: circuit opened: connection refused"), std::string::npos) << engine.log;

  ASSERT_TRUE(engine.until([&] { return engine.status(sink).credit == 1; }, 5000, 20));
  EXPECT_EQ(engine.status(sink).state, OB_SINK_CIRCUIT_OPEN);
  EXPECT_TRUE(submit(sink, 4));
  EXPECT_FALSE(submit(sink, 5)) << "one probe only";
  end(4, Outcome::Sent);
  engine.collect();
  EXPECT_EQ(engine.status(sink).state, OB_SINK_OK);
  EXPECT_STREQ(engine.status(sink).last_error, "");
  EXPECT_NE(engine.log.find("main: circuit closed"), std::string::npos) << engine.log;
  EXPECT_TRUE(submit(sink, 5));
}

TEST_F(EngineTest, SignalsApartFromEvents) {
  ob_sink *sink = open();
  control("main").reporter->down("no broker", OB_REASON_CONNECTION);
  engine.collect();
  EXPECT_EQ(engine.status(sink).state, OB_SINK_CIRCUIT_OPEN);
  EXPECT_STREQ(engine.status(sink).last_error, "no broker");
  control("main").reporter->up();
  engine.collect();
  EXPECT_EQ(engine.status(sink).state, OB_SINK_CIRCUIT_OPEN);
  EXPECT_STREQ(engine.status(sink).last_error, "no broker");
  EXPECT_TRUE(engine.until([&] { return engine.log.find("main: circuit closed") != std::string::npos; }, 60'000, 20))
      << "there is nothing to send, and nobody asked for its status";
  EXPECT_EQ(engine.status(sink).state, OB_SINK_OK);

  control("main").reporter->disabled("HTTP 410");
  engine.collect();
  EXPECT_EQ(engine.status(sink).state, OB_SINK_DISABLED);
  EXPECT_STREQ(engine.status(sink).last_error, "HTTP 410");
  EXPECT_EQ(engine.status(sink).credit, 0u);
  EXPECT_FALSE(submit(sink, 1));
}

/* The metrics count each failure once, whatever the event's outcome is. */
TEST_F(EngineTest, FailuresAreCountedByReason) {
  ob_sink *sink = open();
  for (uint64_t ticket = 1; ticket <= 5; ticket++)
    ASSERT_TRUE(submit(sink, ticket));
  end(1, Outcome::Sent);
  end(2, Outcome::Retry);
  end(3, Outcome::Rejected);
  end(4, Outcome::Returned);
  control("main").reporter->complete(
      outbox::Completion{{Outcome::SinkDown, "HTTP 502: why", OB_REASON_HTTP_5XX}, 5, 5});
  control("main").reporter->down("no broker", OB_REASON_DNS);
  engine.collect();
  ob_sink_status now = engine.status(sink);
  std::map<std::string, uint64_t> counted;
  for (int reason = 0; reason < OB_REASONS; reason++)
    if (now.failures[reason] > 0)
      counted[ob_reason_name(static_cast<ob_reason>(reason))] = now.failures[reason];
  EXPECT_EQ(counted, (std::map<std::string, uint64_t>{{"other", 1}, {"invalid", 1}, {"http_5xx", 1}, {"dns", 1}}));
  EXPECT_EQ(now.n_failures, 4u);
}

TEST_F(EngineTest, EventsWithoutAnAnswerAreCounted) {
  ob_sink *sink = open();
  for (uint64_t ticket = 1; ticket <= 2; ticket++)
    ASSERT_TRUE(submit(sink, ticket));
  end(1, Outcome::Returned);
  control("main").reporter->complete(outbox::Completion{{.outcome = Outcome::Returned, .unanswered = true}, 2, 2});
  control("main").reporter->failed(OB_REASON_CONNECTION, 3);
  engine.collect();
  EXPECT_EQ(engine.status(sink).unanswered, 4u);
}

TEST_F(EngineTest, LogLinesAreBoundedAndTheOldestGo) {
  open();
  for (int i = 0; i < 300; i++)
    control("main").reporter->log(OB_LOG_WARNING, "line " + std::to_string(i));
  EXPECT_TRUE(engine.wait(0));
  ob_log_line line;
  int n = 0;
  while (ob_next_log(engine.raw(), &line)) {
    std::string expected = "line " + std::to_string(44 + n++);
    EXPECT_EQ(line.text, expected);
    EXPECT_STREQ(line.sink, "main");
    EXPECT_EQ(line.level, OB_LOG_WARNING);
  }
  EXPECT_EQ(n, 256);
  EXPECT_STREQ(line.text, "line 299");
}

TEST_F(EngineTest, AClosingSinkWaitsForWhatIsOnTheWire) {
  ob_sink *sink = open();
  submit(sink, 1);
  sink->kind->sink_close(sink, 60'000);
  engine.collect();
  EXPECT_FALSE(sink->kind->sink_closed(sink));
  EXPECT_FALSE(submit(sink, 2));
  end(1, Outcome::Sent);
  EXPECT_FALSE(sink->kind->sink_closed(sink)) << "the completion is not collected yet";
  engine.collect();
  EXPECT_EQ(engine.done.at(0).outcome, OB_SENT);
  EXPECT_TRUE(sink->kind->sink_closed(sink));
}

TEST_F(EngineTest, TheEndOfTheGraceIsNoticedByTheDescriptor) {
  ob_sink *sink = open();
  submit(sink, 1);
  submit(sink, 2);
  sink->kind->sink_close(sink, 100);
  /* No tick: only the descriptor ends this wait. */
  ASSERT_TRUE(engine.until([&] { return engine.done.size() == 2; }, 60'000, 60'000));
  EXPECT_EQ(engine.done[0].outcome, OB_RETURNED);
  EXPECT_EQ(engine.done[1].outcome, OB_RETURNED);
  EXPECT_TRUE(sink->kind->sink_closed(sink));
  EXPECT_FALSE(engine.wait(0)) << "the timer is off";
}

TEST_F(EngineTest, AnotherSinkGoesOnWhileOneCloses) {
  ob_sink *sink = open();
  ob_sink *other = engine.open("memory", {}, {}, "other");
  submit(sink, 1);
  submit(other, 2);
  sink->kind->sink_close(sink, 60'000);
  control("other").end(2, Outcome::Sent);
  engine.collect();
  ASSERT_EQ(engine.done.size(), 1u);
  EXPECT_EQ(engine.done[0].ticket, 2u);
  EXPECT_EQ(engine.status(other).state, OB_SINK_OK);
}

TEST_F(EngineTest, ReportsOfASinkThatIsGoneFindNothing) {
  ob_sink *sink = open();
  auto reporter = control("main").reporter;
  sink->kind->sink_close(sink, 0);
  engine.collect();
  ASSERT_TRUE(sink->kind->sink_closed(sink));
  reporter->complete(outbox::Completion{{Outcome::Sent}, 9, 9});
  reporter->down("late", OB_REASON_CONNECTION);
  engine.collect();
  EXPECT_TRUE(engine.done.empty());
}

TEST_F(EngineTest, ReportsFromManyThreadsAllArrive) {
  ob_sink *sink = open({{"capacity", "1000"}});
  std::vector<uint64_t> tickets;
  for (uint64_t ticket = 1; ticket <= 1000; ticket++) {
    submit(sink, ticket);
    tickets.push_back(ticket);
  }
  auto reporter = control("main").reporter;
  std::vector<std::thread> threads;
  for (uint64_t part = 0; part < 4; part++)
    threads.emplace_back([&, part] {
      for (uint64_t i = part * 250; i < (part + 1) * 250; i++)
        reporter->complete(outbox::Completion{{Outcome::Sent}, tickets[i], tickets[i]});
    });
  EXPECT_TRUE(engine.until([&] { return engine.done.size() == 1000; }));
  for (auto &thread : threads)
    thread.join();
  std::vector<uint64_t> seen;
  for (auto &done : engine.done)
    seen.push_back(done.ticket);
  std::sort(seen.begin(), seen.end());
  EXPECT_EQ(seen, tickets);
}

TEST_F(EngineTest, CloseIsBoundedWhenADestructorHangs) {
  auto hang = control("main").hang = std::make_shared<memory::Hang>();
  ob_sink *sink = open();
  engine.open("memory", {}, {}, "other");
  submit(sink, 1);
  auto reporter = control("main").reporter;
  auto from = std::chrono::steady_clock::now();
  EXPECT_FALSE(ob_engines_close(engine.release(), 200));
  auto took = std::chrono::steady_clock::now() - from;
  EXPECT_GE(took, std::chrono::milliseconds(200));
  EXPECT_LT(took, std::chrono::seconds(60));
  reporter->complete(outbox::Completion{{Outcome::Sent}, 1, 1}); /* a late thread does no harm */
  hang->let_go.set_value();
  hang->gone.get_future().wait();
}

TEST_F(EngineTest, AHangingDestructorDoesNotHoldUpTheMainThread) {
  auto hang = control("main").hang = std::make_shared<memory::Hang>();
  ob_sink *sink = open();
  sink->kind->sink_close(sink, 0);
  engine.collect();
  EXPECT_TRUE(sink->kind->sink_closed(sink)) << "returns although the destructor still waits";
  ob_sink *other = engine.open("memory", {}, {}, "other");
  door::Event event;
  EXPECT_TRUE(engine.submit(other, event));
  hang->let_go.set_value();
  hang->gone.get_future().wait();
}

TEST_F(EngineTest, BadOptionsOpenNothing) {
  EXPECT_EQ(engine.open("memory", {{"capacity", "0"}}), nullptr);
  EXPECT_EQ(engine.error.kind, OB_BAD_VALUE);
  EXPECT_EQ(engine.open("memory", {}, {{"capacity", "5"}}), nullptr);
  EXPECT_EQ(engine.error.kind, OB_WRONG_PLACE);
  EXPECT_EQ(engine.open("pigeon", {}), nullptr);
}

TEST_F(EngineTest, ACheckerJudgesWithoutASink) {
  ob_error error;
  ob_checker *checker = border::checker_open("memory", {}, nullptr, &error);
  ASSERT_NE(checker, nullptr);
  door::Event event;
  ob_event raw = event.raw();
  EXPECT_TRUE(border::check(checker, raw, &error));
  event.event_type = "forbidden";
  raw = event.raw();
  EXPECT_FALSE(border::check(checker, raw, &error));
  EXPECT_STREQ(error.message, "event type is forbidden");
  EXPECT_EQ(checker->max_payload, SIZE_MAX);
  ob_release(checker);
  ob_release<ob_checker>(nullptr);
  door::OptionList bad = {{"capacity", "x"}};
  EXPECT_EQ(border::checker_open("memory", bad, nullptr, &error), nullptr);
}

TEST(Engine, NamesTheLibrariesOfHttp) {
  ob_client_library loaded{};
  outbox::SinkKind::find("webhook")->client_library(loaded);
  const std::string versions = loaded.versions;
  for (const char *part : {"libcurl ", ", OpenSSL 3."})
    EXPECT_NE(versions.find(part), std::string::npos) << versions;
  EXPECT_EQ(loaded.fitness, OB_FIT);
}

TEST(Engine, ItsThreadsHaveEverySignalBlocked) {
  std::promise<sigset_t> promise;
  auto future = promise.get_future();
  struct Asks : outbox::Sink {
    std::promise<sigset_t> &promise;
    explicit Asks(std::promise<sigset_t> &p) : promise(p) {}
    ~Asks() override {
      sigset_t set;
      pthread_sigmask(SIG_SETMASK, nullptr, &set);
      promise.set_value(set);
    }
    uint32_t credit() const override { return 0; }
    outbox::Submitted submit(const ob_event &) override { return false; }
    void release_queued() override {}
    void abandon() override {}
  };
  outbox::BackgroundJobs reaper;
  reaper.destroy(std::make_unique<Asks>(promise));
  sigset_t blocked = future.get();
  EXPECT_TRUE(reaper.finish(patience_ends(std::chrono::seconds(10))));
  for (int number : {SIGTERM, SIGINT, SIGHUP, SIGURG, SIGUSR1, SIGUSR2, SIGALRM, SIGCHLD, SIGQUIT, SIGPIPE})
    EXPECT_EQ(sigismember(&blocked, number), 1) << number;
  sigset_t mine;
  pthread_sigmask(SIG_SETMASK, nullptr, &mine);
  EXPECT_EQ(sigismember(&mine, SIGTERM), 0) << "the starter's own mask is as before";
}

/* New threads get a stack that no memory can hold. */
class NoThreads {
public:
  NoThreads() {
    pthread_getattr_default_np(&usual_);
    pthread_attr_t huge;
    pthread_getattr_default_np(&huge);
    pthread_attr_setstacksize(&huge, size_t{1} << 50);
    pthread_setattr_default_np(&huge);
  }
  ~NoThreads() { pthread_setattr_default_np(&usual_); }

private:
  pthread_attr_t usual_;
};

TEST(Engine, AJobRunsAsSoonAsThereIsAThread) {
  outbox::BackgroundJobs jobs;
  std::atomic<int> ran{0};
  {
    NoThreads none;
    EXPECT_THROW(jobs.run([&] { ran++; }), std::system_error);
  }
  jobs.run([&] { ran++; });
  EXPECT_TRUE(jobs.finish(patience_ends(std::chrono::seconds(10))));
  EXPECT_EQ(ran, 1);
}

}  // namespace
