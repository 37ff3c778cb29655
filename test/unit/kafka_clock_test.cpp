/* The wall clock is set back while a Kafka sink runs. */
#include <gtest/gtest.h>

#include <deque>

#include "door.h"
#include "kafka_broker.h"
#include "passed_time.h"

namespace {

class KafkaClock : public testing::Test {
protected:
  KafkaClock() {
    broker.create_topic("outbox.event.Order", 1);
    broker.create_topic("outbox.event.Other", 1);
  }
  ob_sink *open() { return engine.open("kafka", {{"bootstrap_servers", broker.address()}}); }
  bool send(const char *type) {
    door::Event &event = events.emplace_back();
    event.ticket = events.size();
    event.aggregate_type = type;
    return engine.submit(sink, event);
  }
  /* Sends events that are returned again, as the worker does, until all are sent. */
  bool delivered() {
    return engine.until(
        [&] {
          for (const door::Done &each : std::exchange(engine.done, {}))
            if (each.outcome == OB_SENT)
              sent++;
            else
              returned.push_back(each.ticket);
          while (!returned.empty() && engine.submit(sink, events[returned.front() - 1]))
            returned.pop_front();
          return sent == events.size();
        },
        20'000, 100);
  }

  KafkaBroker broker{2};
  door::Engine engine;
  ob_sink *sink = nullptr;
  std::deque<door::Event> events;
  std::deque<uint64_t> returned;
  size_t sent = 0;
};

/* librdkafka's main thread asks for a producer id until it gets one. */
TEST_F(KafkaClock, DelaysNoProducerId) {
  constexpr int16_t init_producer_id = 22;
  broker.fail(init_producer_id, RD_KAFKA_RESP_ERR_COORDINATOR_LOAD_IN_PROGRESS, 1000);
  sink = open();
  ASSERT_TRUE(send("Order"));
  auto failures = [&] {
    size_t n = 0;
    for (size_t at = 0; (at = engine.log.find("GETPID", at)) != std::string::npos; at++)
      n++;
    return n;
  };
  ASSERT_TRUE(engine.until([&] { return failures() >= 3; })); /* then all connections are there */
  {
    ClockAhead ahead;
    engine.collect(); /* the sink looks at the clock */
  }
  broker.pass(init_producer_id);
  EXPECT_TRUE(delivered()) << engine.log;
}

/* The thread of a broker waits before it connects again, while other brokers acknowledge events. */
TEST_F(KafkaClock, DelaysNoBrokerThatComesBack) {
  broker.lead("outbox.event.Other", 0, 2);
  sink = open();
  ASSERT_TRUE(send("Order") && send("Other") && delivered());
  {
    ClockAhead ahead;
    broker.stop(2);
    ASSERT_TRUE(send("Other"));
  }
  ASSERT_TRUE(send("Order"));
  broker.start(2);
  ASSERT_TRUE(delivered()) << engine.log;
  EXPECT_EQ(broker.read("outbox.event.Other", 1, 2).size(), 2u) << "it was never sent before";
}

}  // namespace
