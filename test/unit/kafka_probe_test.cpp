/* Kafka probes: librdkafka's mock cluster, sockets that misbehave, and the texts for users. */
#include "sinks/kafka/kafka_client.h"
#include "fault_server.h"
#include "kafka_broker.h"
#include "probe_door.h"

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

namespace {

bool has(const std::string &text, const char *part) {
  return text.find(part) != std::string::npos;
}

}  // namespace

TEST(KafkaProbe, TopicsThatFitATemplate) {
  KafkaBroker broker;
  for (const char *topic : {"outbox.event.Order", "outbox.event.Customer", "other"})
    broker.create_topic(topic, 1);
  door::EndedProbe probe("kafka", {{"bootstrap_servers", broker.address()}});
  EXPECT_TRUE(has(probe.step("topics").message, "2 fit")) << probe.text();
  EXPECT_FALSE(has(probe.step("topics").message, "other")) << probe.text();
}

TEST(KafkaProbe, ATopicThatMayNotBeSeen) {
  KafkaBroker broker;
  broker.create_topic("secret", 0); /* real brokers show no partition of it; librdkafka 2.8 crashes if there is one */
  broker.topic_error("secret", RD_KAFKA_RESP_ERR_TOPIC_AUTHORIZATION_FAILED);
  door::EndedProbe probe("kafka", {{"bootstrap_servers", broker.address()}, {"topic", "secret"}});
  EXPECT_FALSE(probe.step("topic").ok);
  EXPECT_TRUE(has(probe.step("topic").message, "not allowed to write to topic \"secret\"")) << probe.text();
}

TEST(KafkaProbe, NoProducerIdWithoutTheRight) {
  KafkaBroker broker;
  broker.create_topic("orders", 1);
  broker.fail(22 /* InitProducerId */, RD_KAFKA_RESP_ERR_CLUSTER_AUTHORIZATION_FAILED, 5);
  door::EndedProbe probe("kafka", {{"bootstrap_servers", broker.address()}, {"topic", "orders"}});
  EXPECT_FALSE(probe.step("producer id").ok);
  EXPECT_TRUE(has(probe.step("producer id").message, "authorization failed")) << probe.text();
  EXPECT_TRUE(probe.step("topic").ok) << probe.text();
}

TEST(KafkaProbe, NobodyListens) {
  DeadPort port;
  auto start = Clock::now();
  door::EndedProbe probe("kafka", {{"bootstrap_servers", port.host_port.c_str()}}, 600'000);
  EXPECT_LT(Clock::now() - start, 60s) << "it is known at once";
  ASSERT_EQ(probe.steps.size(), 1u) << probe.text();
  EXPECT_TRUE(has(probe.step("connect").message, "connection refused")) << probe.text();
  EXPECT_TRUE(has(probe.step("connect").message, port.host_port.c_str())) << probe.text();
}

TEST(KafkaProbe, ANameThatDoesNotResolve) {
  door::EndedProbe probe("kafka", {{"bootstrap_servers", "no-such-host.invalid:9092"}});
  ASSERT_EQ(probe.steps.size(), 1u) << probe.text();
  EXPECT_TRUE(has(probe.step("connect").message, "host name \"no-such-host.invalid\" cannot be resolved"))
      << probe.text();
}

TEST(KafkaProbe, ABlackHoleEndsInTime) {
  DeadPort port;
  ASSERT_EQ(listen(port.fd, 16), 0);
  door::EndedProbe probe("kafka", {{"bootstrap_servers", port.host_port.c_str()}}, 1'000);
  EXPECT_TRUE(probe.step("connect").ok);
  EXPECT_TRUE(has(probe.step("answer").message, "did not answer within 1000 ms")) << probe.text();
}

TEST(KafkaProbe, AGoodTopicAndOneOfTheBootstrapServersWillDo) {
  KafkaBroker broker;
  DeadPort port;
  broker.create_topic("orders", 3);
  std::string servers = port.host_port + "," + broker.address();
  door::EndedProbe probe("kafka", {{"bootstrap_servers", servers.c_str()}, {"topic", "orders"}});
  EXPECT_TRUE(probe.ok()) << probe.text();
  EXPECT_TRUE(has(probe.step("topic").message, "\"orders\" has 3 partitions")) << probe.text();
  probe.step("connect"), probe.step("cluster"), probe.step("producer id"), probe.step("brokers");
}

TEST(KafkaProbe, LeavesNoThread) {
  KafkaBroker broker;
  broker.create_topic("orders", 1);
  door::Engine engine;
  size_t before = door::threads();
  for (int i = 0; i < 10; i++) {
    door::Probe probe(engine, "kafka", {{"bootstrap_servers", broker.address()}, {"topic", "orders"}});
    ASSERT_TRUE(probe.end());
  }
  EXPECT_TRUE(engine.until([&] { return door::threads() <= before + 1; }, 60'000, 20))
      << door::threads() << " of " << before;
}

TEST(KafkaProbe, WhichBrokerATextIsAbout) {
  EXPECT_EQ(outbox::broker_address("sasl_ssl://b1.example:9093/bootstrap: SASL authentication error: no"),
            "b1.example:9093");
  EXPECT_EQ(outbox::broker_address("127.0.0.1:9092/2: Disconnected (after 2ms in state UP)"), "127.0.0.1:9092");
  EXPECT_EQ(outbox::broker_address("Local: something / else: here"), "");
}

TEST(KafkaProbe, OptionsThatDoNotGoTogether) {
  door::EndedProbe probe("kafka",
                         {{"bootstrap_servers", "b:1"}, {"security_protocol", "ssl"}, {"ssl_cipher_suites", "none"}});
  ASSERT_EQ(probe.steps.size(), 1u) << probe.text();
  EXPECT_TRUE(has(probe.step("options").message, "librdkafka refuses the options")) << probe.text();
}
