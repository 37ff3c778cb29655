/* A Kafka sink with several producers, which it opens because the mock cluster answers late. */
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <string>

#include "door.h"
#include "kafka_broker.h"
#include "passed_time.h"
#include "patience.h"
#include "sinks/kafka/kafka_order.h"
#include "sinks/kafka/kafka_sink.h"
#include "webhook_fixture.h"

namespace {

class KafkaLanes : public testing::Test {
protected:
  static constexpr int partitions = 12;

  void SetUp() override { broker.create_topic("outbox.event.Order", partitions); }
  ob_sink *open(door::OptionList options = {}) {
    options.insert(options.begin(), {"bootstrap_servers", broker.address()});
    ob_sink *sink = engine.open("kafka", options);
    EXPECT_NE(sink, nullptr) << engine.error.message << " " << engine.error.detail;
    return sink;
  }

  /* The next event of the key, with its number. */
  bool send(ob_sink *sink, int key, const char *type = "Order") {
    door::Event event;
    event.ticket = ticket + 1;
    event.aggregate_type = type;
    event.key = std::to_string(key);
    event.payload = std::to_string(next[key]);
    if (!engine.submit(sink, event))
      return false;
    keys[++ticket] = key;
    next[key]++;
    return true;
  }
  /* So many events of each of the keys; waits for credit. */
  void send_all(ob_sink *sink, int each, int n_keys = 60) {
    for (int i = 0; i < each; i++)
      for (int key = 0; key < n_keys; key++)
        ASSERT_TRUE(engine.until([&] { return send(sink, key); }, 60'000, 10)) << engine.log;
  }
  bool told(const std::string &text) const { return engine.log.find(text) != std::string::npos; }
  /* Until the sink has so many producers. */
  void grow(ob_sink *sink, int producers = 6) {
    broker.slow_down(4);
    const std::string grown = "has " + std::to_string(producers) + " Kafka producers now";
    const auto end = patience_ends(std::chrono::seconds(60));
    while (!told(grown) && std::chrono::steady_clock::now() < end)
      send_all(sink, 5);
    broker.slow_down(0);
    ASSERT_TRUE(told(grown)) << engine.log;
    ASSERT_TRUE(all_done());
  }
  /* Forgets what has ended. */
  void begin_part() {
    engine.done.clear();
    engine.log.clear();
    before = ticket;
  }
  bool all_done() {
    return engine.until([&] { return engine.done.size() >= ticket - before; }, 60'000, 100);
  }
  void expect_all_sent() const {
    for (const door::Done &each : engine.done)
      EXPECT_EQ(each.outcome, OB_SENT) << each.ticket << ": " << each.error << "\n" << engine.log;
  }
  /* The keys whose events ended so. */
  std::set<int> keys_with(ob_outcome outcome) {
    std::set<int> found;
    for (const door::Done &each : engine.done)
      if (each.outcome == outcome)
        found.insert(keys.at(each.ticket));
    return found;
  }
  /* Every event arrived once, in the order of its key. */
  void check(size_t n) {
    std::map<std::string, int> arrived;
    const auto messages = broker.read("outbox.event.Order", partitions, n);
    EXPECT_EQ(messages.size(), n);
    for (const Message &message : messages)
      ASSERT_EQ(message.value.value(), std::to_string(arrived[message.key.value()]++)) << "key " << *message.key;
  }

  /* That run in this process; each has one thread of this name. */
  static size_t running() {
    size_t n = 0;
    for (const auto &thread : std::filesystem::directory_iterator("/proc/self/task")) {
      std::string name;
      std::getline(std::ifstream(thread.path() / "comm"), name);
      n += name == "rdk:main";
    }
    return n;
  }
  bool all_closed_but(size_t producers) {
    return engine.until([&] { return running() <= producers; }, 60'000, 20);
  }

  KafkaBroker broker;
  PassedTime time;
  door::Engine engine;
  uint64_t ticket = 0, before = 0;
  std::map<uint64_t, int> keys; /* by ticket */
  std::map<int, int> next;
};

TEST_F(KafkaLanes, AreOpenedWhereTheBrokerIsFarAwayAndKeepTheOrderOfKeys) {
  ob_sink *sink = open({{"queue_buffering_max_messages", "1000"}});
  grow(sink, 4);
  grow(sink);
  broker.slow_down(4);
  const auto credit = engine.status(sink).credit;
  EXPECT_EQ(credit, 1000u) << "all producers together hold as many events as one";
  send_all(sink, 50);
  ASSERT_TRUE(all_done());
  expect_all_sent();
  check(ticket);
}

TEST_F(KafkaLanes, AreNotOpenedWhereTheBrokerIsNear) {
  ob_sink *sink = open();
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(4);
  while (std::chrono::steady_clock::now() < end)
    send_all(sink, 5);
  ASSERT_TRUE(all_done());
  EXPECT_FALSE(told("producers")) << engine.log;
}

TEST_F(KafkaLanes, AreClosedAfterTenMinutesWithoutAnEventAndOpenedAgain) {
  constexpr std::chrono::minutes nearly{9}, rest{2};
  ob_sink *sink = open();
  const size_t with_one = running();
  for (int round = 0; round < 2; round++) {
    grow(sink);
    EXPECT_EQ(running(), with_one + 5);
    begin_part();
    time.pass(nearly);
    send_all(sink, 1);
    ASSERT_TRUE(all_done());
    time.pass(nearly);
    engine.collect();
    EXPECT_EQ(running(), with_one + 5) << "an event came nine minutes ago";
    time.pass(rest);
    ASSERT_TRUE(engine.until([&] { return told("the sink has one Kafka producer again"); }, 5'000, 20)) << engine.log;
    ASSERT_TRUE(all_closed_but(with_one));
    send_all(sink, 5);
    ASSERT_TRUE(all_done());
    expect_all_sent();
  }
  check(ticket);
}

/* What a producer knows of topics ends with it, and so does what is told of them. */
TEST_F(KafkaLanes, AreClosedWithTheirPausedTopics) {
  ob_sink *sink = open();
  grow(sink);
  int key = 0; /* not of the producer that stays */
  while (outbox::kafka_hash(door::text(std::to_string(key))) % 6 == 0)
    key++;
  broker.topic_error("outbox.event.Missing", RD_KAFKA_RESP_ERR_UNKNOWN_TOPIC_OR_PART);
  begin_part();
  ASSERT_TRUE(send(sink, key, "Missing"));
  ASSERT_TRUE(all_done()) << engine.log;
  ASSERT_EQ(engine.status(sink).state, OB_SINK_DEGRADED);
  time.pass(std::chrono::minutes(11));
  EXPECT_TRUE(engine.until([&] { return engine.status(sink).state == OB_SINK_OK; }, 5'000, 20))
      << engine.status(sink).last_error;
}

TEST_F(KafkaLanes, AnOutageOfAllBrokersIsOne) {
  ob_sink *sink = open();
  grow(sink);
  broker.stop();
  for (int key = 0; key < 60; key++)
    ASSERT_TRUE(send(sink, key));
  ASSERT_TRUE(engine.until([&] { return engine.status(sink).state == OB_SINK_CIRCUIT_OPEN; }, 60'000, 20));
  ASSERT_TRUE(engine.until([&] { return engine.status(sink).credit == 1; }, 60'000, 20)) << "a probe";
  ASSERT_TRUE(send(sink, 0));
  broker.start();
  ASSERT_TRUE(all_done());
  expect_all_sent();
  EXPECT_TRUE(engine.until([&] { return engine.status(sink).state == OB_SINK_OK; }, 60'000, 20));
  EXPECT_STREQ(engine.status(sink).last_error, "");
  check(ticket);
}

/* The threads of each producer wait by that clock before they connect again. */
TEST_F(KafkaLanes, AClockThatIsSetBackDelaysNone) {
  ob_sink *sink = open();
  grow(sink);
  begin_part();
  std::set<int> left, to_send;
  for (int key = 0; key < 60; key++)
    to_send.insert(key);
  left = to_send;
  auto all_delivered = [&] {
    for (const door::Done &each : std::exchange(engine.done, {})) {
      const int key = keys.at(each.ticket);
      if (each.outcome == OB_SENT) {
        left.erase(key);
      } else {
        next[key]--;
        to_send.insert(key);
      }
    }
    while (!to_send.empty() && send(sink, *to_send.begin()))
      to_send.erase(to_send.begin());
    return left.empty();
  };
  {
    ClockAhead ahead;
    broker.stop();
    ASSERT_FALSE(all_delivered());
    engine.collect(); /* the sink looks at the clock */
  }
  broker.start();
  EXPECT_TRUE(engine.until(all_delivered, 20'000, 100)) << left.size() << " keys are left\n" << engine.log;
}

/* Also an outage that nothing but a probe shows, when no event waits. */
TEST_F(KafkaLanes, AnOutageEndsWithNothingToSend) {
  ob_sink *sink = open();
  grow(sink);
  broker.stop();
  ASSERT_TRUE(engine.until([&] { return engine.status(sink).state == OB_SINK_CIRCUIT_OPEN; }, 60'000, 20));
  broker.start();
  EXPECT_TRUE(engine.until([&] { return engine.status(sink).state == OB_SINK_OK; }, 60'000, 20));
}

/* The events of other keys are sent meanwhile, and the circuit stays closed. */
TEST_F(KafkaLanes, AFatalErrorOfOneDelaysItsOwnKeysOnly) {
  ob_sink *sink = open();
  grow(sink);
  begin_part();
  const uint64_t unanswered = engine.status(sink).unanswered;
  broker.fail_produce(RD_KAFKA_RESP_ERR_OUT_OF_ORDER_SEQUENCE_NUMBER, 1);
  send_all(sink, 1);
  ASSERT_TRUE(all_done()) << engine.log;
  const std::set<int> returned = keys_with(OB_RETURNED), sent = keys_with(OB_SENT);
  EXPECT_GT(returned.size(), 0u);
  EXPECT_GT(sent.size(), 30u) << "the keys of one of eight producers are returned";
  EXPECT_EQ(returned.size() + sent.size(), 60u);
  EXPECT_GT(engine.status(sink).unanswered, unanswered) << "a broker may have stored those of the failed batch";
  EXPECT_LE(engine.status(sink).unanswered, unanswered + returned.size()) << "some of them waited behind it";
  for (int key : returned) /* as the server does */
    next[key]--;
  for (int key : returned)
    ASSERT_TRUE(send(sink, key)) << "it waits in the sink";
  for (int key : sent)
    ASSERT_TRUE(send(sink, key));
  ASSERT_TRUE(all_done()) << engine.log;
  EXPECT_FALSE(told("circuit opened")) << engine.log;
  EXPECT_TRUE(told("sequence desynchronization")) << engine.log;
  check(ticket - returned.size());
}

/* Its lane waits until all its events have ended, which takes 400 ms here; the other lanes do not. */
TEST_F(KafkaLanes, ARefusedBatchDelaysItsOwnKeysOnly) {
  ob_sink *sink = open();
  grow(sink);
  begin_part();
  broker.fail_produce(RD_KAFKA_RESP_ERR_INVALID_RECORD, 1);
  send_all(sink, 1);
  ASSERT_TRUE(all_done()) << engine.log;
  const std::set<int> returned = keys_with(OB_RETURNED);
  ASSERT_GT(returned.size(), 0u);
  EXPECT_GT(keys_with(OB_SENT).size(), 30u);
  for (int key : returned)
    next[key]--;
  send_all(sink, 3);
  ASSERT_TRUE(all_done());
  check(ticket - returned.size());
}

/* Each lane finds out for itself; the user is told once. */
TEST_F(KafkaLanes, AMissingTopicIsToldOnce) {
  ob_sink *sink = open();
  grow(sink);
  broker.topic_error("outbox.event.Missing", RD_KAFKA_RESP_ERR_UNKNOWN_TOPIC_OR_PART);
  begin_part();
  for (int key = 0; key < 60; key++)
    ASSERT_TRUE(engine.until([&] { return send(sink, key, "Missing"); }, 60'000, 10));
  ASSERT_TRUE(all_done()) << engine.log;
  EXPECT_GT(keys_with(OB_DEFERRED).size(), 30u);
  ASSERT_EQ(engine.status(sink).state, OB_SINK_DEGRADED);
  EXPECT_STREQ(engine.status(sink).last_error,
               "topic \"outbox.event.Missing\" does not exist: create it, or let the brokers create topics");
  size_t lines = 0;
  for (size_t at = 0; (at = engine.log.find("its events wait", at)) != std::string::npos; at++)
    lines++;
  EXPECT_EQ(lines, 1u) << engine.log;
}

TEST_F(KafkaLanes, ClosingReleasesWhatNoBrokerWasSent) {
  ob_sink *sink = open();
  grow(sink);
  broker.stop();
  begin_part();
  for (int key = 0; key < 60; key++)
    ASSERT_TRUE(send(sink, key));
  sink->kind->sink_close(sink, 2000);
  ASSERT_TRUE(all_done());
  EXPECT_EQ(keys_with(OB_RETURNED).size(), 60u);
}

/* Sends events of sixty keys, three hundred at a time. */
class SinkUnderLoad {
public:
  SinkUnderLoad(const KafkaBroker &broker, std::shared_ptr<outbox::KafkaExtraProducers> extra)
      : reporter_(std::make_shared<outbox::RecordingReporter>()),
        sink_(std::static_pointer_cast<const outbox::KafkaConfig>(
                  outbox::SinkKind::find("kafka")->parse({{"bootstrap_servers", broker.address()}}, nullptr)),
              reporter_, std::move(extra)) {}

  void send() {
    for (int i = 0; i < 300; i++) {
      event_.ticket = ++sent_;
      event_.key = std::to_string(i % 60);
      if (!sink_.submit(event_.raw()))
        sent_--;
    }
    sink_.flush();
    outbox::wait_for(sink_, *reporter_, sent_);
  }

private:
  std::shared_ptr<outbox::RecordingReporter> reporter_;
  outbox::KafkaSink sink_;
  door::Event event_;
  size_t sent_ = 0;
};

/* How often the sink had to send until so many producers could no longer be taken; `most` if they always can. */
int sends_until_taken(SinkUnderLoad &sink, outbox::KafkaExtraProducers &extra, size_t n, int most) {
  for (int sends = 1; sends <= most; sends++) {
    sink.send();
    if (!extra.take(n))
      return sends;
    extra.give_back(n);
  }
  return most;
}

/* All sinks of a process together may have `most` producers beyond the first of each. */
TEST(KafkaExtraProducers, AreAskedForByASink) {
  constexpr int partitions = 12;
  constexpr size_t opens = 3; /* at first; with four producers it hardly waits any more */
  constexpr int most_sends = 5000;
  KafkaBroker broker;
  broker.create_topic("outbox.event.Order", partitions);
  broker.slow_down(4);
  PassedTime time;
  auto extra = std::make_shared<outbox::KafkaExtraProducers>();
  int sends;
  {
    SinkUnderLoad sink(broker, extra);
    sends = sends_until_taken(sink, *extra, outbox::KafkaExtraProducers::most, most_sends);
    ASSERT_LT(sends, most_sends) << "it has not grown";
  }
  ASSERT_TRUE(extra->take(outbox::KafkaExtraProducers::most - 2)) << "a sink that ends gives its own back";
  SinkUnderLoad sink(broker, extra);
  for (int i = 0; i < 2 * sends; i++)
    sink.send();
  EXPECT_TRUE(extra->take(2)) << "it has taken what was there, though it was not enough";
  extra->give_back(2 + opens);
  time.pass(std::chrono::minutes(6)); /* it does not ask again at once */
  EXPECT_LT(sends_until_taken(sink, *extra, opens, most_sends), most_sends) << "it grew before, without asking";
}

}  // namespace
