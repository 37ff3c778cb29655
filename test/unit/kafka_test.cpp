/* The Kafka sink with librdkafka's mock cluster, through the delivery API. */
#include <algorithm>
#include <gtest/gtest.h>
#include <pthread.h>

#include <deque>
#include <set>
#include <thread>

#include "door.h"
#include "kafka_broker.h"
#include "patience.h"

namespace {

/* No thread can be started during its lifetime: each would need more stack than is available. */
class NoThreads {
public:
  NoThreads() {
    pthread_attr_t much;
    pthread_getattr_default_np(&before_);
    pthread_attr_init(&much);
    pthread_attr_setstacksize(&much, size_t(1) << 50);
    EXPECT_EQ(pthread_setattr_default_np(&much), 0);
    pthread_attr_destroy(&much);
    EXPECT_THROW(std::thread([] {}).join(), std::system_error);
  }
  ~NoThreads() {
    pthread_setattr_default_np(&before_);
    pthread_attr_destroy(&before_);
  }

private:
  pthread_attr_t before_;
};

class KafkaTest : public testing::Test {
protected:
  ob_sink *open(door::OptionList options = {}) {
    options.insert(options.begin(), {"bootstrap_servers", address.c_str()});
    ob_sink *sink = engine.open("kafka", options);
    EXPECT_NE(sink, nullptr) << engine.error.message << " " << engine.error.detail;
    return sink;
  }
  /* A sink that has sent event 1, "1" of key "7": its topic and the connections are known. */
  ob_sink *open_warm(door::OptionList options = {}) {
    broker.create_topic("outbox.event.Order", 1);
    ob_sink *sink = open(std::move(options));
    EXPECT_TRUE(send(sink, 1, "7", "1") && done(1));
    return sink;
  }
  bool send(ob_sink *sink, uint64_t ticket, const std::string &key, const std::string &payload) {
    door::Event event;
    event.ticket = ticket;
    event.key = key;
    event.payload = payload;
    return engine.submit(sink, event);
  }
  bool done(size_t n, int timeout_ms = 30'000) {
    return engine.until([&] { return engine.done.size() >= n; }, timeout_ms, 100);
  }
  size_t sent() const {
    return static_cast<size_t>(
        std::count_if(engine.done.begin(), engine.done.end(), [](auto &done) { return done.outcome == OB_SENT; }));
  }

  /* The values in the topic, once there are at least `n`. */
  std::vector<std::string> arrived(size_t n) {
    std::vector<std::string> values;
    for (const Message &message : broker.read("outbox.event.Order", 1, n))
      values.push_back(message.value.value_or("null"));
    return values;
  }

  /* One event after another, until one arrives. */
  bool sends_again(ob_sink *sink, uint64_t ticket) {
    const uint64_t first = ticket;
    return engine.until(
        [&] {
          if (engine.done.back().outcome == OB_SENT && engine.done.back().ticket > first)
            return true;
          if (engine.done.size() == ticket && send(sink, ticket + 1, "7", "{}"))
            ticket++;
          return false;
        },
        60'000, 100);
  }

  /* After a refusal: a late purge would take one of the next events. */
  void settle(ob_sink *sink) {
    door::Event event;
    event.ticket = 1'000'000;
    event.aggregate_type = event.key = "settled";
    engine.done.clear();
    ASSERT_TRUE(engine.until(
        [&] {
          if (!engine.done.empty() && engine.done.back().outcome == OB_SENT)
            return true;
          if (engine.done.size() == event.ticket - 1'000'000 && engine.submit(sink, event))
            event.ticket++;
          return false;
        },
        60'000, 20));
    engine.done.clear();
  }

  /* The sink opens more producers, because events of many keys wait for a broker that answers late. */
  void open_producers(ob_sink *sink) {
    broker.create_topic("outbox.event.Many", 12);
    broker.slow_down(4);
    const auto end = patience_ends(std::chrono::seconds(60));
    door::Event event;
    event.aggregate_type = "Many";
    event.ticket = 0;
    while (engine.log.find("has 6 Kafka producers") == std::string::npos && std::chrono::steady_clock::now() < end) {
      event.key = std::to_string(event.ticket % 100);
      if (engine.submit(sink, event))
        event.ticket++;
      else
        engine.wait(10);
      engine.collect();
    }
    broker.slow_down(0);
    ASSERT_TRUE(done(event.ticket)) << engine.log;
    engine.done.clear();
  }

  /* They are refused as one batch: it accumulates while there is no broker. */
  void refused_together(ob_sink *sink, const std::vector<ob_event> &events, size_t n) {
    engine.collect();
    engine.done.clear();
    broker.stop();
    ASSERT_TRUE(engine.wait(patient(std::chrono::seconds(20)).count())) << "the lost connection";
    ASSERT_EQ(sink->kind->submit(sink, events.data(), n), n);
    broker.fail_produce(RD_KAFKA_RESP_ERR_INVALID_RECORD, 1);
    broker.start();
    ASSERT_TRUE(done(n));
    ASSERT_EQ(ended(OB_RETURNED).size(), n);
    settle(sink);
  }
  std::vector<uint64_t> ended(ob_outcome outcome) const {
    std::vector<uint64_t> tickets;
    for (const door::Done &each : engine.done)
      if (each.outcome == outcome)
        tickets.push_back(each.ticket);
    return tickets;
  }

  KafkaBroker broker;
  std::string address = broker.address();
  door::Engine engine;
};

TEST_F(KafkaTest, SendsWhatDebeziumsRouterWouldSend) {
  broker.create_topic("outbox.event.Order", 1);
  ob_sink *sink = open();
  door::Event event, tombstone, keyless, empty;
  event.headers = {{"traceparent", "00-1"}, {"a", ""}};
  tombstone.ticket = 2;
  tombstone.has_payload = false;
  keyless.ticket = 3;
  keyless.has_key = false;
  empty.ticket = 4;
  empty.key = empty.payload = "";
  for (door::Event *each : {&event, &tombstone, &keyless, &empty})
    ASSERT_TRUE(engine.submit(sink, *each));
  ASSERT_TRUE(done(4));
  EXPECT_EQ(sent(), 4u) << engine.done[0].error;

  auto messages = broker.read("outbox.event.Order", 1, 4);
  ASSERT_EQ(messages.size(), 4u);
  using Headers = std::vector<std::pair<std::string, std::string>>;
  EXPECT_EQ(messages[0].key, "7");
  EXPECT_EQ(messages[0].value, R"({"total": 12.5})");
  EXPECT_EQ(messages[0].headers,
            (Headers{{"id", door::event_id}, {"eventType", "order.created"}, {"traceparent", "00-1"}, {"a", ""}}));
  EXPECT_EQ(messages[1].key, "7");
  EXPECT_EQ(messages[1].value, std::nullopt) << "a tombstone is NULL";
  EXPECT_EQ(messages[1].headers, (Headers{{"id", door::event_id}, {"eventType", "order.created"}}));
  EXPECT_EQ(messages[2].key, std::nullopt) << "no key stays no key";
  EXPECT_EQ(messages[3].key.value_or("NULL"), "");
  EXPECT_EQ(messages[3].value.value_or("NULL"), "") << "empty is not NULL";
}

TEST_F(KafkaTest, ChoosesThePartitionsThatJavaChooses) {
  broker.create_topic("outbox.event.Order", 12);
  ob_sink *sink = open();
  const std::map<std::string, int> expected = {{"21", 0}, {"foobar", 6}, {"abc", 3}, {"1", 3}, {"", 9}};
  uint64_t ticket = 0;
  for (auto &[key, partition] : expected)
    ASSERT_TRUE(send(sink, ++ticket, key, key));
  ASSERT_TRUE(done(expected.size()));
  std::map<std::string, int> found;
  for (auto &message : broker.read("outbox.event.Order", 12, expected.size()))
    found[message.key.value()] = message.partition;
  EXPECT_EQ(found, expected);
}

TEST_F(KafkaTest, TheTopicFollowsItsTemplate) {
  broker.create_topic("x.Order.order.created", 1);
  ob_sink *sink = open({{"topic", "x.${aggregate_type}.${event_type}"}});
  ASSERT_TRUE(send(sink, 1, "7", "{}"));
  ASSERT_TRUE(done(1));
  EXPECT_EQ(engine.done[0].outcome, OB_SENT);
  EXPECT_EQ(broker.read("x.Order.order.created", 1, 1).size(), 1u);
}

TEST_F(KafkaTest, TheTimestampIsTheTimeOfSendingOrThatOfTheEventUnlessThatLiesInTheFuture) {
  broker.create_topic("created", 1);
  broker.create_topic("now", 1);
  auto now = [] {
    using namespace std::chrono;
    return duration_cast<milliseconds>(system_clock::now().time_since_epoch()).count();
  };
  ob_sink *created = open({{"topic", "created"}, {"timestamp", "created_at"}}), *sending = open({{"topic", "now"}});
  int64_t before = now();
  door::Event event, future, ancient;
  future.ticket = 2;
  future.created_at_us = 1000 * before + 7'200'000'000;
  ancient.ticket = 3;
  ancient.created_at_us = -1;
  for (door::Event *each : {&event, &future, &ancient})
    ASSERT_TRUE(engine.submit(created, *each) && engine.submit(sending, *each));
  ASSERT_TRUE(done(6));
  EXPECT_EQ(sent(), 6u) << engine.done[0].error;
  auto messages = broker.read("created", 1, 3);
  EXPECT_EQ(messages[0].timestamp_ms, event.created_at_us / 1000);
  messages.erase(messages.begin());
  for (const Message &message : broker.read("now", 1, 3))
    messages.push_back(message);
  for (const Message &message : messages) {
    EXPECT_GE(message.timestamp_ms, before);
    EXPECT_LE(message.timestamp_ms, now());
  }
}

TEST_F(KafkaTest, AGivenPartitionIsTakenAndOneTooManyIsToldWithoutAHang) {
  broker.create_topic("outbox.event.Order", 4);
  ob_sink *sink = open({{"partition", "${header.shard}"}});
  const char *shards[] = {"2", "9", "0", "3"};
  door::Event events[4]; /* the first one is sent when the topic is not yet known */
  for (uint64_t i = 0; i < 4; i++) {
    events[i].ticket = i + 1;
    events[i].key = std::to_string(i);
    events[i].headers = {{"shard", shards[i]}};
    ASSERT_TRUE(engine.until([&] { return engine.submit(sink, events[i]); }, 60'000, 50)); /* not while it drains */
  }
  ASSERT_TRUE(done(4));
  for (const door::Done &each : engine.done) {
    if (each.ticket == 2) {
      EXPECT_EQ(each.outcome, OB_RETRY);
      EXPECT_NE(each.error.find("artition"), std::string::npos) << each.error;
    } else {
      EXPECT_TRUE(each.outcome == OB_SENT || each.outcome == OB_RETURNED) << each.error;
    }
  }
  uint64_t ticket = 10;
  for (door::Event *again : {&events[0], &events[2], &events[3]}) {
    bool arrived = false;
    for (int tries = 0; tries < 10 && !arrived; tries++) { /* the purge may still be on its way to a broker thread */
      again->ticket = ++ticket;
      ASSERT_TRUE(engine.until([&] { return engine.submit(sink, *again); }, 60'000, 50));
      ASSERT_TRUE(engine.until([&] { return engine.done.back().ticket == ticket; }));
      arrived = engine.done.back().outcome == OB_SENT;
    }
    EXPECT_TRUE(arrived) << engine.done.back().error;
  }
  std::map<std::string, int> last;
  auto was_sent = [](const door::Done &each) { return each.outcome == OB_SENT; }; /* some twice: by this test */
  for (auto &message : broker.read("outbox.event.Order", 4, std::ranges::count_if(engine.done, was_sent)))
    last[message.key.value()] = message.partition;
  EXPECT_EQ(last, (std::map<std::string, int>{{"0", 2}, {"2", 0}, {"3", 3}}));
}

TEST_F(KafkaTest, ManyEventsKeepTheOrderOfTheirKeys) {
  constexpr int keys = 20, each = 250;
  broker.create_topic("outbox.event.Order", 4);
  ob_sink *sink = open({{"queue_buffering_max_messages", "1000"}});
  EXPECT_EQ(engine.status(sink).credit, 1000u);
  uint64_t ticket = 0;
  for (int i = 0; i < each; i++)
    for (int key = 0; key < keys; key++) {
      ticket++;
      while (!send(sink, ticket, std::to_string(key), std::to_string(i))) {
        size_t before = engine.done.size(); /* back-pressure: there is credit again soon after completions */
        ASSERT_TRUE(engine.until([&] { return engine.done.size() > before; }));
      }
    }
  ASSERT_TRUE(done(ticket));
  EXPECT_EQ(sent(), ticket);
  EXPECT_EQ(engine.status(sink).credit, 1000u);
  std::set<uint64_t> tickets;
  for (auto &one : engine.done)
    tickets.insert(one.ticket);
  EXPECT_EQ(tickets.size(), ticket) << "each ticket once";

  std::map<std::string, int> next;
  auto messages = broker.read("outbox.event.Order", 4, ticket);
  EXPECT_EQ(messages.size(), ticket);
  for (auto &message : messages)
    ASSERT_EQ(message.value.value(), std::to_string(next[message.key.value()]++)) << "key " << *message.key;
}

TEST_F(KafkaTest, AStoppedBrokerOpensTheCircuitAndNothingIsLostOrReordered) {
  ob_sink *sink = open_warm();

  broker.stop();
  uint64_t ticket = 1;
  for (int i = 0; i < 10; i++)
    ASSERT_TRUE(send(sink, ticket + 1, "7", std::to_string(ticket + 1)) && ++ticket);
  ASSERT_TRUE(engine.until([&] { return engine.status(sink).state == OB_SINK_CIRCUIT_OPEN; }, 60'000, 20));
  std::string reason = engine.status(sink).last_error;
  EXPECT_NE(reason.find("brokers are down"), std::string::npos) << reason;
  EXPECT_EQ(engine.done.size(), 1u) << "librdkafka holds them, in order";

  /* The probe joins them. */
  ASSERT_TRUE(engine.until([&] { return engine.status(sink).credit == 1; }, 60'000, 20));
  ASSERT_TRUE(send(sink, ticket + 1, "7", std::to_string(ticket + 1)) && ++ticket);
  EXPECT_FALSE(send(sink, ticket + 1, "7", "x"));

  broker.start();
  auto from = std::chrono::steady_clock::now();
  ASSERT_TRUE(done(ticket));
  EXPECT_LT(std::chrono::steady_clock::now() - from, patient(std::chrono::seconds(5)));
  EXPECT_EQ(sent(), ticket);
  EXPECT_EQ(engine.status(sink).state, OB_SINK_OK);
  EXPECT_STREQ(engine.status(sink).last_error, "");

  std::vector<std::string> all;
  for (uint64_t n = 1; n <= ticket; n++)
    all.push_back(std::to_string(n));
  EXPECT_EQ(arrived(ticket), all);
}

TEST_F(KafkaTest, ABrokerThatComesBackIsSeenWithNothingToSend) {
  ob_sink *sink = open_warm();
  broker.stop();
  ASSERT_TRUE(engine.until([&] { return engine.status(sink).state == OB_SINK_CIRCUIT_OPEN; }, 60'000, 20));
  broker.start();
  EXPECT_TRUE(engine.until([&] { return engine.status(sink).state == OB_SINK_OK; }, 60'000, 100));
}

TEST_F(KafkaTest, AnIdleSinkLeavesItsCallerAlone) {
  open_warm();
  for (int i = 0; i < 10; i++, engine.collect()) /* that event's data */
    engine.wait(100);
  EXPECT_FALSE(engine.wait(6000));
}

TEST_F(KafkaTest, NoBrokerAtAllOpensTheCircuitWithTheReason) {
  address = "127.0.0.1:1";
  ob_sink *sink = open();
  ASSERT_TRUE(engine.until([&] { return engine.status(sink).state == OB_SINK_CIRCUIT_OPEN; }, 60'000, 20));
  std::string reason = engine.status(sink).last_error;
  EXPECT_NE(reason.find("Connection refused"), std::string::npos) << reason;
}

struct BrokerError {
  rd_kafka_resp_err_t error;
  ob_outcome outcome;
  const char *text;
};
void PrintTo(const BrokerError &error, std::ostream *out) {
  *out << rd_kafka_err2name(error.error);
}

class KafkaBrokerError : public KafkaTest, public testing::WithParamInterface<BrokerError> {};

TEST_P(KafkaBrokerError, HasItsOutcomeAndItsWholeText) {
  ob_sink *sink = open_warm();
  broker.fail_produce(GetParam().error, 1);
  ASSERT_TRUE(send(sink, 2, "7", "{}"));
  ASSERT_TRUE(done(2));
  EXPECT_EQ(engine.done[1].outcome, GetParam().outcome);
  EXPECT_EQ(engine.done[1].error, GetParam().text);
  /* The cause is gone, and the sink continues. */
  EXPECT_TRUE(sends_again(sink, 2));
}

INSTANTIATE_TEST_SUITE_P(
    Errors, KafkaBrokerError,
    testing::Values(
        BrokerError{RD_KAFKA_RESP_ERR_MSG_SIZE_TOO_LARGE, OB_RETURNED,
                    "Broker: Message size too large: topic \"outbox.event.Order\", partition 0"},
        BrokerError{RD_KAFKA_RESP_ERR_INVALID_RECORD, OB_RETURNED,
                    "Broker: Broker failed to validate record: topic \"outbox.event.Order\", partition 0"},
        BrokerError{RD_KAFKA_RESP_ERR_TOPIC_AUTHORIZATION_FAILED, OB_DEFERRED,
                    "topic \"outbox.event.Order\" may not be written: grant WRITE on it to the sink's principal"},
        BrokerError{RD_KAFKA_RESP_ERR_UNSUPPORTED_FOR_MESSAGE_FORMAT, OB_RETRY,
                    "Broker: Message format on broker does not support request: topic \"outbox.event.Order\", "
                    "partition 0"},
        BrokerError{RD_KAFKA_RESP_ERR_THROTTLING_QUOTA_EXCEEDED, OB_DEFERRED,
                    "topic \"outbox.event.Order\" cannot be written now: Broker: Throttling quota has been exceeded"},
        BrokerError{RD_KAFKA_RESP_ERR_FENCED_LEADER_EPOCH, OB_DEFERRED,
                    "topic \"outbox.event.Order\" cannot be written now: Broker: Leader epoch is older than broker "
                    "epoch"},
        BrokerError{RD_KAFKA_RESP_ERR_UNKNOWN_LEADER_EPOCH, OB_DEFERRED,
                    "topic \"outbox.event.Order\" cannot be written now: Broker: Leader epoch is newer than broker "
                    "epoch"},
        BrokerError{RD_KAFKA_RESP_ERR_NETWORK_EXCEPTION, OB_DEFERRED,
                    "topic \"outbox.event.Order\" cannot be written now: Broker: Broker disconnected before response "
                    "received"},
        BrokerError{RD_KAFKA_RESP_ERR_UNSUPPORTED_COMPRESSION_TYPE, OB_DEFERRED,
                    "topic \"outbox.event.Order\" cannot be written now: Broker: Unsupported compression type"},
        BrokerError{RD_KAFKA_RESP_ERR_INVALID_REQUIRED_ACKS, OB_RETURNED,
                    "Broker: Invalid required acks value: topic \"outbox.event.Order\", partition 0"},
        BrokerError{RD_KAFKA_RESP_ERR_TOPIC_EXCEPTION, OB_REJECTED,
                    "Broker: Invalid topic: topic \"outbox.event.Order\", partition 0"}),
    [](const auto &info) { return std::string(rd_kafka_err2name(info.param.error)); });

TEST_F(KafkaTest, AnErrorThatPassesIsRetriedByLibrdkafkaItself) {
  broker.create_topic("outbox.event.Order", 1);
  ob_sink *sink = open();
  broker.fail_produce(RD_KAFKA_RESP_ERR_NOT_LEADER_FOR_PARTITION, 2);
  ASSERT_TRUE(send(sink, 1, "7", "{}"));
  ASSERT_TRUE(done(1));
  EXPECT_EQ(engine.done[0].outcome, OB_SENT) << engine.done[0].error;
  EXPECT_EQ(broker.read("outbox.event.Order", 1, 1).size(), 1u);
}

TEST_F(KafkaTest, WhatOneRequestAtATimeSendsAgainKeepsItsPlace) {
  broker.create_topic("outbox.event.Order", 1);
  ob_sink *sink = open({{"batch_num_messages", "1"}});
  broker.fail_produce(RD_KAFKA_RESP_ERR_NOT_LEADER_FOR_PARTITION, 1);
  const std::vector<std::string> payloads{"1", "2", "3", "4", "5"};
  for (size_t i = 0; i < payloads.size(); i++)
    ASSERT_TRUE(send(sink, i + 1, "7", payloads[i]));
  ASSERT_TRUE(done(payloads.size()));
  EXPECT_EQ(sent(), payloads.size());
  EXPECT_EQ(arrived(payloads.size()), payloads);
}

/* With several requests in flight, librdkafka acknowledges a failed batch when a later one succeeds. */
TEST_F(KafkaTest, AnAcknowledgementWithoutAnOffsetIsNone) {
  ob_sink *sink = open_warm({{"batch_num_messages", "1"}, {"max_in_flight_requests_per_connection", "5"}});
  broker.fail_produce(RD_KAFKA_RESP_ERR_NOT_LEADER_FOR_PARTITION, 1);
  uint64_t n = 1;
  /* A sink that has seen the failure accepts no more. */
  while (n < 6 && send(sink, n + 1, "7", std::to_string(n + 1)))
    n++;
  ASSERT_GT(n, 1);
  ASSERT_TRUE(done(n));
  const std::vector<std::string> found = arrived(sent());
  for (const auto &each : engine.done) {
    if (each.outcome == OB_SENT) {
      EXPECT_TRUE(std::count(found.begin(), found.end(), std::to_string(each.ticket)))
          << each.ticket << " was acknowledged and never arrived";
    }
  }
}

/* Events that are queued behind such an event are sent after it, not as if nothing had happened. */
TEST_F(KafkaTest, AnAcknowledgementWithoutAnOffsetStopsTheFollowers) {
  ob_sink *sink = open_warm({{"batch_num_messages", "1"}, {"max_in_flight_requests_per_connection", "5"}});
  broker.slow_down(20);
  broker.fail_produce(RD_KAFKA_RESP_ERR_NOT_LEADER_FOR_PARTITION, 1);
  uint64_t n = 1;
  while (n < 1000 && send(sink, n + 1, "7", std::to_string(n + 1)))
    n++;
  ASSERT_GT(n, 50);
  ASSERT_TRUE(done(n));
  auto unsure = std::find_if(engine.done.begin(), engine.done.end(), [](const auto &each) {
    return each.error.find("without an offset") != std::string::npos;
  });
  ASSERT_NE(unsure, engine.done.end());
  EXPECT_EQ(unsure->outcome, OB_RETURNED);
  EXPECT_LT(sent(), n / 2) << "its followers went on";
}

/* A problem that breaks the producer itself: limits how often it can break. */
struct Disturbance {
  rd_kafka_resp_err_t error;
  int every;                      /* the number of events */
  bool several_producers = false; /* of the sink */
};
void PrintTo(const Disturbance &disturbance, std::ostream *out) {
  *out << rd_kafka_err2name(disturbance.error) << (disturbance.several_producers ? "_SeveralProducers" : "");
}
class KafkaOrder : public KafkaTest, public testing::WithParamInterface<Disturbance> {};

/* Behaves like the server: per key the first undelivered event is sent again, and its followers after it. A broker
 * that has forgotten a producer refuses every batch that does not start with sequence 0. The mock refuses one request
 * and stores the next, which librdkafka had already built, with the gap: the only case in which an event may be
 * overtaken here. The sink detects it by the missing offset. */
TEST_P(KafkaOrder, IsKeptWhenRequestsFail) {
  constexpr int keys = 50, each = 200;
  const bool fatal = GetParam().every > 300;
  broker.create_topic("outbox.event.Order", 4);
  ob_sink *sink = open({{"batch_num_messages", "20"}, {"queue_buffering_max_messages", "1000"}});
  if (GetParam().several_producers)
    open_producers(sink);
  std::vector<int> next(keys, 1), claimed(keys, 1), attempts(keys, 0);
  std::map<uint64_t, std::pair<int, int>> under_way; /* ticket: key, number */
  std::set<std::pair<int, int>> taken;               /* in flight, or delivered and gone */
  std::set<std::pair<int, int>> overtaken;           /* the broker stored a later request of their key */
  uint64_t ticket = 0;
  int left = keys * each, refusals = 0, dead = 0;
  size_t seen = 0;
  auto end = patience_ends(std::chrono::seconds(60));
  while (left > 0 && std::chrono::steady_clock::now() < end) {
    if (left <= keys * each - refusals * GetParam().every) {
      refusals++;
      broker.fail_produce(GetParam().error, 1);
    }
    for (int key = 0; key < keys; key++) {
      /* A failing event is sent alone. */
      int until = attempts[key] > 0 ? std::min(claimed[key], next[key]) : each;
      for (; claimed[key] <= until && claimed[key] <= each; claimed[key]++) {
        if (taken.count({key, claimed[key]}) > 0)
          continue;
        door::Event event;
        event.ticket = ++ticket;
        event.key = std::to_string(key);
        event.payload = std::to_string(claimed[key]);
        ob_event raw = event.raw();
        raw.attempt = attempts[key] + 1;
        raw.alone = attempts[key] > 0;
        if (sink->kind->submit(sink, &raw, 1) == 0)
          break;
        under_way[ticket] = {key, claimed[key]};
        taken.insert({key, claimed[key]});
      }
    }
    engine.wait(100);
    std::this_thread::sleep_for(std::chrono::milliseconds(5)); /* a busy main thread is late */
    engine.collect();
    for (; seen < engine.done.size(); seen++) {
      auto [key, number] = under_way.at(engine.done[seen].ticket);
      under_way.erase(engine.done[seen].ticket);
      if (engine.done[seen].outcome == OB_SENT || engine.done[seen].outcome == OB_REJECTED) {
        dead += engine.done[seen].outcome == OB_REJECTED;
        next[key] = number + 1;
        attempts[key] = 0;
        left--;
        continue;
      }
      if (engine.done[seen].error.find("without an offset") != std::string::npos)
        overtaken.insert({key, number});
      taken.erase({key, number});
      attempts[key] += engine.done[seen].outcome == OB_RETRY;
      claimed[key] = std::min(claimed[key], number);
    }
  }
  ASSERT_EQ(left, 0);
  EXPECT_GE(refusals, fatal ? 4 : 10);
  std::map<std::string, std::vector<int>> first;
  std::set<std::pair<std::string, std::string>> known;
  size_t n = 0;
  for (auto &message : broker.read("outbox.event.Order", 4, static_cast<size_t>(keys * each - dead))) {
    n++;
    int number = std::stoi(*message.value);
    if (known.insert({*message.key, *message.value}).second &&
        overtaken.count({std::stoi(*message.key), number}) == 0)
      first[*message.key].push_back(number);
  }
  const bool forgets = GetParam().error == RD_KAFKA_RESP_ERR_UNKNOWN_PRODUCER_ID;
  EXPECT_LE(overtaken.size(), static_cast<size_t>(forgets ? refusals * 20 : 0)) << "one request each";
  if (GetParam().error == RD_KAFKA_RESP_ERR_OUT_OF_ORDER_SEQUENCE_NUMBER) {
    int replaced = 0;
    const std::string_view opened = "circuit opened: ";
    for (size_t at = 0; (at = engine.log.find(opened, at)) != std::string::npos; at += opened.size())
      replaced++;
    EXPECT_GE(replaced, GetParam().several_producers ? 0 : 4) << engine.log;
    EXPECT_NE(engine.log.find("sequence desynchronization"), std::string::npos) << engine.log;
  }
  EXPECT_EQ(known.size(), static_cast<size_t>(keys * each - dead)) << "lost";
  EXPECT_LE(n - known.size(), static_cast<size_t>(refusals * 4 * 20)) << "more than was in flight";
  for (auto &[key, numbers] : first)
    EXPECT_TRUE(std::is_sorted(numbers.begin(), numbers.end())) << "key " << key;
}

INSTANTIATE_TEST_SUITE_P(Errors, KafkaOrder,
                         testing::Values(Disturbance{RD_KAFKA_RESP_ERR_UNSUPPORTED_FOR_MESSAGE_FORMAT, 300},
                                         Disturbance{RD_KAFKA_RESP_ERR_INVALID_RECORD, 300},
                                         Disturbance{RD_KAFKA_RESP_ERR_OUT_OF_ORDER_SEQUENCE_NUMBER, 2000},
                                         Disturbance{RD_KAFKA_RESP_ERR_INVALID_PRODUCER_EPOCH, 2000},
                                         Disturbance{RD_KAFKA_RESP_ERR_UNKNOWN_PRODUCER_ID, 2000},
                                         Disturbance{RD_KAFKA_RESP_ERR_INVALID_RECORD, 300, true},
                                         Disturbance{RD_KAFKA_RESP_ERR_OUT_OF_ORDER_SEQUENCE_NUMBER, 2000, true},
                                         Disturbance{RD_KAFKA_RESP_ERR_UNKNOWN_PRODUCER_ID, 2000, true}),
                         [](const auto &info) { return testing::PrintToString(info.param); });

/* The sink was `ordered false` while they failed, and is ordered now: each has failed before, and none is sent alone.
 */
TEST_F(KafkaTest, AnEventThatHasFailedBeforeIsNotTakenForOneThatGoesAlone) {
  ob_sink *sink = open_warm({{"batch_num_messages", "1"}});
  broker.fail_produce({RD_KAFKA_RESP_ERR_NO_ERROR, RD_KAFKA_RESP_ERR_UNKNOWN});
  std::vector<door::Event> events(5);
  std::vector<ob_event> raw;
  for (size_t i = 0; i < events.size(); i++) {
    events[i].ticket = i + 2;
    events[i].payload = std::to_string(i + 2);
    raw.push_back(events[i].raw());
    raw.back().attempt = 2;
  }
  broker.slow_down(100); /* so that all are submitted before the second fails */
  size_t taken = sink->kind->submit(sink, raw.data(), raw.size());
  ASSERT_GE(taken, 2u);
  ASSERT_TRUE(done(1 + taken));
  EXPECT_EQ(arrived(2), (std::vector<std::string>{"1", "2"})) << "the third failed, and was passed";
}

/* Each event of a refused batch may be the culprit: one request for each, and no more for the others. */
TEST_F(KafkaTest, ARefusedBatchIsSentSinglyWhileOtherTopicsGoOn) {
  constexpr uint64_t n = 20;
  broker.create_topic("outbox.event.Order", 1);
  broker.create_topic("outbox.event.Customer", 1);
  broker.create_topic("outbox.event.settled", 1);
  ob_sink *sink = open();
  std::vector<door::Event> events(2 * n);
  std::vector<ob_event> raw;
  for (size_t i = 0; i < 2 * n; i++) {
    events[i].ticket = i + 1;
    events[i].aggregate_type = i < n ? "Order" : "Customer";
    events[i].key = std::to_string(i);
    raw.push_back(events[i].raw());
  }
  auto send_first = [&](size_t count) {
    engine.done.clear();
    EXPECT_EQ(sink->kind->submit(sink, raw.data(), count), count) << "those that wait for their turn stop nobody";
    EXPECT_TRUE(done(count));
  };
  send_first(2 * n); /* topics and connections are known from now on */
  ASSERT_EQ(ended(OB_SENT).size(), 2 * n);

  refused_together(sink, raw, n);
  broker.fail_produce(RD_KAFKA_RESP_ERR_INVALID_RECORD, 5);
  send_first(n);
  EXPECT_EQ(ended(OB_RETRY), (std::vector<uint64_t>{1, 2, 3, 4, 5})) << "each is a refusal by the broker";
  EXPECT_EQ(ended(OB_SENT).size(), n - 5) << "no other batch is given back";

  /* As many events as were refused have been sent: they share batches again, and are refused as a batch. */
  refused_together(sink, raw, n);
  broker.slow_down(20);
  send_first(2 * n);
  EXPECT_EQ(ended(OB_SENT).size(), 2 * n);
  auto last = [&](auto of_topic) {
    auto at =
        std::find_if(engine.done.rbegin(), engine.done.rend(), [&](auto &each) { return of_topic(each.ticket); });
    return engine.done.rend() - at;
  };
  EXPECT_LT(last([&](uint64_t ticket) { return ticket > n; }), last([&](uint64_t ticket) { return ticket <= n; }))
      << "the other topic's are through before";
}

/* Broker 2 answers nothing, and broker 1 refuses a batch of another topic: the sink does not wait for broker 2. */
TEST_F(KafkaTest, ASilentBrokerAndARefusedBatchStopNoOtherTopic) {
  KafkaBroker two(2);
  address = two.address();
  two.create_topic("outbox.event.Order", 1);
  two.create_topic("outbox.event.Customer", 1);
  two.lead("outbox.event.Customer", 0, 2);
  ob_sink *sink = open();
  uint64_t ticket = 0;
  auto send = [&](const char *type) {
    door::Event event;
    event.ticket = ticket + 1;
    event.aggregate_type = event.key = type;
    bool taken = engine.submit(sink, event);
    ticket += taken;
    return taken;
  };
  auto outcome = [&](uint64_t of) {
    auto at = std::find_if(engine.done.begin(), engine.done.end(), [&](auto &each) { return each.ticket == of; });
    return at == engine.done.end() ? -1 : static_cast<int>(at->outcome);
  };
  ASSERT_TRUE(send("Order") && send("Customer"));
  ASSERT_TRUE(done(2));
  two.slow_down(600'000, 2);
  ASSERT_TRUE(send("Customer"));
  two.fail_produce_at(1, RD_KAFKA_RESP_ERR_INVALID_RECORD);
  ASSERT_TRUE(send("Order"));
  ASSERT_TRUE(engine.until([&] { return outcome(4) == OB_RETURNED; }));
  EXPECT_TRUE(engine.until(
      [&] {
        if (ticket > 4 && outcome(ticket) == OB_SENT)
          return true;
        if (ticket == 4 || outcome(ticket) != -1)
          send("Order");
        return false;
      },
      30'000, 100))
      << "credit " << engine.status(sink).credit << "\n"
      << engine.log;
  EXPECT_EQ(outcome(3), OB_RETURNED) << "it is sent again";
  EXPECT_TRUE(engine.until([&] { return engine.status(sink).state == OB_SINK_OK; }, 30'000, 100))
      << engine.status(sink).last_error;
}

/* The event waits for its topic: later events of its key wait too, whatever their topics, and are returned if it
 * fails. Events of other keys do not wait for them. */
TEST_F(KafkaTest, NothingOfItsKeyPassesAnEventThatWaitsForItsTurn) {
  broker.create_topic("outbox.event.Order", 1);
  broker.create_topic("outbox.event.Customer", 1);
  broker.create_topic("outbox.event.settled", 1);
  ob_sink *sink = open();
  std::vector<door::Event> events(5);
  std::vector<ob_event> raw;
  for (size_t i = 0; i < events.size(); i++) {
    events[i].ticket = i + 1;
    events[i].aggregate_type = i >= 3 ? "Customer" : "Order";
    events[i].key = i == 0 ? "a" : i == 4 ? "c" : "b";
    raw.push_back(events[i].raw());
  }
  ASSERT_EQ(sink->kind->submit(sink, raw.data(), 2), 2u);
  ASSERT_TRUE(done(2));
  refused_together(sink, raw, 3);
  broker.fail_produce({RD_KAFKA_RESP_ERR_NO_ERROR, RD_KAFKA_RESP_ERR_UNKNOWN});
  EXPECT_EQ(sink->kind->submit(sink, raw.data(), 4), 4u);
  ASSERT_TRUE(done(4));
  const std::pair<uint64_t, ob_outcome> expected[] = {
      {4, OB_DEFERRED}, {1, OB_SENT}, {2, OB_RETRY}, {3, OB_RETURNED}};
  for (size_t i = 0; i < std::size(expected); i++) {
    EXPECT_EQ(engine.done[i].ticket, expected[i].first);
    EXPECT_EQ(engine.done[i].outcome, expected[i].second) << engine.done[i].error;
  }
  EXPECT_NE(engine.done[0].error.find("behind an event of the same key"), std::string::npos) << engine.done[0].error;

  engine.done.clear();
  EXPECT_EQ(sink->kind->submit(sink, raw.data(), 5), 5u) << "the fifth has another key and another topic";
  ASSERT_TRUE(done(5));
  EXPECT_EQ(ended(OB_DEFERRED), (std::vector<uint64_t>{4}));
  EXPECT_EQ(ended(OB_SENT).size(), 4u);
}

/* Its events were deleted, as users do for a topic that will never exist. */
TEST_F(KafkaTest, AMissingTopicThatNoEventAsksForIsForgotten) {
  broker.topic_error("outbox.event.Order", RD_KAFKA_RESP_ERR_UNKNOWN_TOPIC_OR_PART);
  ob_sink *sink = open({{"topic_metadata_propagation_max_ms", "100"}});
  ASSERT_TRUE(send(sink, 1, "7", "{}"));
  ASSERT_TRUE(done(1));
  ASSERT_TRUE(engine.until([&] { return engine.status(sink).state == OB_SINK_DEGRADED; }, 10'000, 20));
  /* No tick: the descriptor wakes the engine. */
  EXPECT_TRUE(engine.until([&] { return engine.status(sink).state == OB_SINK_OK; }, 20'000, 20'000));
  EXPECT_STREQ(engine.status(sink).last_error, "");
}

TEST_F(KafkaTest, AnUnknownTopicWaitsAndIsFoundOnceItIsThere) {
  broker.topic_error("outbox.event.Order", RD_KAFKA_RESP_ERR_UNKNOWN_TOPIC_OR_PART);
  ob_sink *sink = open({{"topic_metadata_propagation_max_ms", "100"}});
  ASSERT_TRUE(send(sink, 1, "7", "{}"));
  ASSERT_TRUE(done(1));
  const std::string reason =
      "topic \"outbox.event.Order\" does not exist: create it, or let the brokers create topics";
  EXPECT_EQ(engine.done[0].outcome, OB_DEFERRED);
  EXPECT_EQ(engine.done[0].error, reason);
  ASSERT_TRUE(engine.until([&] { return engine.status(sink).state == OB_SINK_DEGRADED; }, 10'000, 20));
  EXPECT_EQ(engine.status(sink).last_error, reason);

  /* Other events continue meanwhile, and the events of one key stay in order. */
  broker.create_topic("outbox.event.Customer", 1);
  uint64_t ticket = 1;
  for (const char *type : {"Customer", "Order", "Order", "Customer"}) {
    door::Event event;
    event.ticket = ++ticket;
    event.aggregate_type = type;
    event.key = type;
    ASSERT_TRUE(engine.submit(sink, event));
  }
  ASSERT_TRUE(done(5));
  for (const auto &each : engine.done)
    if (each.ticket == 4) /* returned behind event 3, or put off after it, if that had ended before */
      EXPECT_TRUE(each.outcome == OB_RETURNED || each.outcome == OB_DEFERRED);
    else
      EXPECT_EQ(each.outcome, each.ticket == 2 || each.ticket == 5 ? OB_SENT : OB_DEFERRED) << each.ticket;

  char over[128] = "";
  EXPECT_FALSE(sink->kind->sink_next_resumed(sink, over, sizeof over));
  broker.topic_error("outbox.event.Order", RD_KAFKA_RESP_ERR_NO_ERROR);
  EXPECT_TRUE(sends_again(sink, 5)) << engine.done.back().error;
  EXPECT_TRUE(sink->kind->sink_next_resumed(sink, over, sizeof over));
  EXPECT_EQ(over, reason.substr(0, strlen(over)));
  EXPECT_STREQ(over, "topic \"outbox.event.Order\"");
  EXPECT_TRUE(engine.until([&] { return engine.status(sink).state == OB_SINK_OK; }, 10'000, 20));
  EXPECT_STREQ(engine.status(sink).last_error, "");
}

TEST_F(KafkaTest, AFatalErrorReplacesTheProducerAndReleasesWhatWasUnderWay) {
  ob_sink *sink = open_warm();
  broker.fail_produce(RD_KAFKA_RESP_ERR_OUT_OF_ORDER_SEQUENCE_NUMBER, 1);
  ASSERT_TRUE(send(sink, 2, "7", "2"));
  ASSERT_TRUE(done(2));
  ASSERT_EQ(engine.done[1].ticket, 2u);
  EXPECT_EQ(engine.done[1].outcome, OB_RETURNED);
  /* The event's report and the end of the producer can come in either order; the sink reports the cause in both
   * cases. */
  ASSERT_TRUE(engine.until([&] { return engine.log.find("circuit opened: ") != std::string::npos; })) << engine.log;
  EXPECT_NE(engine.log.find("sequence desynchronization"), std::string::npos) << engine.log;
  ASSERT_TRUE(engine.until([&] { return send(sink, 3, "7", "3"); }, 60'000, 20));
  ASSERT_TRUE(done(3));
  EXPECT_EQ(engine.done[2].outcome, OB_SENT) << engine.done[2].error;
}

/* The producer is destroyed on a thread of its own; if there is none, the server continues anyway. */
TEST_F(KafkaTest, AFatalErrorIsSurvivedWhereNoThreadStarts) {
  ob_sink *sink = open_warm();
  broker.fail_produce(RD_KAFKA_RESP_ERR_OUT_OF_ORDER_SEQUENCE_NUMBER, 1);
  ASSERT_TRUE(send(sink, 2, "7", "2"));
  {
    NoThreads no_threads;
    ASSERT_TRUE(engine.until([&] { return engine.log.find("circuit opened: ") != std::string::npos; })) << engine.log;
  }
  ASSERT_TRUE(done(2));
  EXPECT_TRUE(sends_again(sink, 2));
}

TEST_F(KafkaTest, AnOversizeEventIsADeadLetterAndItsNeighboursGo) {
  broker.create_topic("outbox.event.Order", 1);
  ob_sink *sink = open({{"message_max_bytes", "2000"}});
  ASSERT_TRUE(send(sink, 1, "7", "small"));
  ASSERT_TRUE(send(sink, 2, "7", std::string(3000, 'x')));
  ASSERT_TRUE(send(sink, 3, "8", "small"));
  ASSERT_TRUE(done(3));
  for (auto &one : engine.done)
    EXPECT_EQ(one.outcome, one.ticket == 2 ? OB_REJECTED : OB_SENT) << one.error;
  auto rejected = std::find_if(engine.done.begin(), engine.done.end(), [](auto &one) { return one.ticket == 2; });
  EXPECT_EQ(rejected->error, "event is too large for a Kafka message: With its key and headers it has 3061 bytes, "
                             "and at most 2000 are allowed.");
}

/* At enqueue time only the payload's length is known, and the format makes it longer. */
TEST_F(KafkaTest, AnEventIsJudgedByTheSizeOfItsRecord) {
  broker.create_topic("outbox.event.Order", 1);
  ob_sink *sink = open({{"message_max_bytes", "2000"}, {"value_format", "json_string"}});
  ASSERT_TRUE(send(sink, 1, "7", std::string(1500, '"')));
  ASSERT_TRUE(done(1));
  EXPECT_EQ(engine.done[0].outcome, OB_REJECTED);
  EXPECT_EQ(engine.done[0].error,
            "event is too large for a Kafka message: With its key and headers it has 3063 bytes, "
            "and at most 2000 are allowed.");
}

/* The options changed after it was enqueued. */
TEST_F(KafkaTest, AnOversizeEventHoldsItsKeyInTheSameBatchWhereTheSinkSaysSo) {
  broker.create_topic("outbox.event.Order", 1);
  ob_sink *sink = open({{"message_max_bytes", "2000"}, {"on_dead_letter", "block"}});
  ASSERT_TRUE(send(sink, 1, "7", "small"));
  ASSERT_TRUE(send(sink, 2, "7", std::string(3000, 'x')));
  ASSERT_TRUE(send(sink, 3, "7", "small"));
  ASSERT_TRUE(send(sink, 4, "8", "small"));
  ASSERT_TRUE(done(4));
  for (auto &one : engine.done)
    EXPECT_EQ(one.outcome, one.ticket == 2 ? OB_REJECTED : one.ticket == 3 ? OB_RETURNED : OB_SENT) << one.ticket;
}

TEST_F(KafkaTest, ClosingReleasesWhatNoBrokerWasSent) {
  address = "127.0.0.1:1";
  ob_sink *sink = open();
  for (uint64_t ticket = 1; ticket <= 5; ticket++)
    ASSERT_TRUE(send(sink, ticket, "7", "x"));
  sink->kind->sink_close(sink, 60'000);
  ASSERT_TRUE(done(5, 10'000)) << "long before the end of the grace";
  for (auto &one : engine.done)
    EXPECT_EQ(one.outcome, OB_RETURNED);
  EXPECT_TRUE(sink->kind->sink_closed(sink));
}

TEST_F(KafkaTest, ClosingLetsWhatIsOnTheWireFinish) {
  ob_sink *sink = open_warm();
  for (uint64_t ticket = 2; ticket <= 50; ticket++)
    ASSERT_TRUE(send(sink, ticket, "7", "x"));
  sink->kind->sink_close(sink, 20'000);
  ASSERT_TRUE(done(50));
  EXPECT_TRUE(sink->kind->sink_closed(sink));
  for (auto &one : engine.done)
    EXPECT_TRUE(one.outcome == OB_SENT || one.outcome == OB_RETURNED);
}

TEST_F(KafkaTest, TheEngineClosesInBoundedTimeWithEventsUnderWay) {
  address = "127.0.0.1:1";
  ob_sink *sink = open();
  for (uint64_t ticket = 1; ticket <= 100; ticket++)
    if (!send(sink, ticket, "7", "x"))
      break;
  auto from = std::chrono::steady_clock::now();
  EXPECT_TRUE(ob_engines_close(engine.release(), 600'000));
  EXPECT_LT(std::chrono::steady_clock::now() - from, std::chrono::seconds(60));
}

TEST_F(KafkaTest, OptionsThatDoNotGoTogetherAreRefusedWhenItOpens) {
  door::OptionList options = {
      {"bootstrap_servers", address.c_str()}, {"reconnect_backoff_ms", "5000"}, {"reconnect_backoff_max_ms", "1000"}};
  EXPECT_EQ(engine.open("kafka", options), nullptr);
  EXPECT_EQ(engine.error.kind, OB_BAD_VALUE);
  EXPECT_STREQ(engine.error.message, "librdkafka refuses the options of the sink");
  EXPECT_NE(std::string(engine.error.detail).find("reconnect."), std::string::npos) << engine.error.detail;
}

/* librdkafka starts without any broker, and would never look for one again. */
TEST_F(KafkaTest, AProducerWithoutABrokerIsRefusedWhenItOpens) {
  EXPECT_EQ(engine.open("kafka", {{"bootstrap_servers", "ssl://127.0.0.1:9092"}}), nullptr);
  EXPECT_STREQ(engine.error.message, "librdkafka has no broker to start from");
}

}  // namespace
