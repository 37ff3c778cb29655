/* The producer stops at a failure; tested with librdkafka's mock cluster. */
#include "sinks/kafka/kafka_slots.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <future>
#include <map>
#include <mutex>
#include <thread>
#include <vector>

#include "kafka_broker.h"
#include "passed_time.h"
#include "patience.h"
#include "sinks/kafka/kafka_client.h"

namespace outbox {

struct LatePurge {
  static void arrives(KafkaProducer &producer) { KafkaProducer::purge(producer.producer_); }
  /* The mutex that produce() holds, and the call that it makes meanwhile. */
  static std::mutex &mutex(KafkaProducer &producer) { return producer.mutex_; }
  static int queue(KafkaProducer::Topic &topic, uint64_t opaque) {
    return rd_kafka_produce(topic.handle.get(), 0, RD_KAFKA_MSG_F_COPY, const_cast<char *>("1"), 1, nullptr, 0,
                            reinterpret_cast<void *>(opaque));
  }
};

namespace {

/* A broker thread executes a purge when it gets to it, perhaps after all messages have ended for another reason and
 * the producer runs again. The purge then takes messages that were produced later; messages after those must not
 * overtake them. */
TEST(KafkaProducer, APurgeThatIsLateStopsItAnew) {
  KafkaBroker broker;
  broker.create_topic("t", 1);
  KafkaConfig config({{"bootstrap_servers", broker.address()}, {"linger_ms", "300"}}, nullptr);
  KafkaProducer producer(config, nullptr, eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  KafkaProducer::Topic &topic = *producer.topic("t");
  Record record;
  record.topic = "t";
  record.value = {"1", 1};
  auto ends = [&](uint64_t opaque) {
    for (auto end = patience_ends(std::chrono::seconds(30)); std::chrono::steady_clock::now() < end;
         std::this_thread::sleep_for(std::chrono::milliseconds(10)))
      for (const KafkaProducer::Ending &ending : producer.ended().all)
        if (ending.opaque == opaque)
          return ending.error;
    return RD_KAFKA_RESP_ERR__FAIL;
  };
  constexpr uint64_t first = uint64_t(1) << 32, second = uint64_t(2) << 32, third = uint64_t(3) << 32;

  ASSERT_EQ(producer.produce(topic, record, first), RD_KAFKA_RESP_ERR_NO_ERROR);
  ASSERT_EQ(ends(first), RD_KAFKA_RESP_ERR_NO_ERROR); /* its partition has a broker from now on */
  ASSERT_EQ(producer.produce(topic, record, second), RD_KAFKA_RESP_ERR_NO_ERROR);
  LatePurge::arrives(producer);
  ASSERT_EQ(ends(second), RD_KAFKA_RESP_ERR__PURGE_QUEUE);
  EXPECT_TRUE(producer.stopped());
  EXPECT_EQ(producer.produce(topic, record, third), RD_KAFKA_RESP_ERR__QUEUE_FULL);

  rd_kafka_resp_err_t error = RD_KAFKA_RESP_ERR__PURGE_QUEUE; /* the purge of the stop may be late too */
  for (int i = 0; i < 100 && error == RD_KAFKA_RESP_ERR__PURGE_QUEUE; i++) {
    producer.resume();
    ASSERT_EQ(producer.produce(topic, record, third), RD_KAFKA_RESP_ERR_NO_ERROR);
    error = ends(third);
  }
  EXPECT_EQ(error, RD_KAFKA_RESP_ERR_NO_ERROR);

  /* A requested purge does not stop it. */
  ASSERT_EQ(producer.produce(topic, record, second), RD_KAFKA_RESP_ERR_NO_ERROR);
  producer.purge_queued();
  ASSERT_EQ(ends(second), RD_KAFKA_RESP_ERR__PURGE_QUEUE);
  EXPECT_FALSE(producer.stopped());
}

/* The same while the main thread produces: what it has just queued must not be sent behind a message that the purge
 * has ended. Each round ends with purges. Broker threads may execute some in the next one: how many
 * depends on the machine, and 5,000 rounds had none once. ALatePurgeWaitsForWhatIsBeingProduced makes one late. */
TEST(KafkaProducer, NothingThatIsProducedDuringALatePurgeIsSentBehindIt) {
  KafkaBroker broker;
  broker.create_topic("t", 1);
  KafkaConfig config({{"bootstrap_servers", broker.address()}}, nullptr);
  KafkaProducer producer(config, nullptr, eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  KafkaProducer::Topic &topic = *producer.topic("t");
  Record record;
  record.topic = "t";
  record.value = {"1", 1};
  uint64_t late = 0;
  for (int round = 0; late < 300 && round < 3000; round++) {
    uint64_t produced = 0, ended = 0, first_lost = UINT64_MAX, last_stored = 0;
    while (produced < 100 && producer.produce(topic, record, (produced + 1) << 32) == RD_KAFKA_RESP_ERR_NO_ERROR)
      produced++;
    late += producer.stopped();
    for (int i = 0; i < 20 && round > 0; i++) /* from then on its partition has a broker */
      LatePurge::arrives(producer);
    for (auto end = patience_ends(std::chrono::seconds(30));
         ended < produced && std::chrono::steady_clock::now() < end; std::this_thread::yield())
      for (const KafkaProducer::Ending &ending : producer.ended().all) {
        ended++;
        if (ending.error)
          first_lost = std::min(first_lost, ending.opaque >> 32);
        else
          last_stored = std::max(last_stored, ending.opaque >> 32);
      }
    ASSERT_EQ(ended, produced);
    ASSERT_LT(last_stored, first_lost) << "out of order in round " << round;
    producer.resume();
  }
}

/* The main thread may lose its processor within produce(). */
TEST(KafkaProducer, ALatePurgeWaitsForWhatIsBeingProduced) {
  KafkaBroker broker;
  broker.create_topic("t", 1);
  KafkaConfig config({{"bootstrap_servers", broker.address()}, {"linger_ms", "60000"}, {"batch_num_messages", "2"}},
                     nullptr);
  KafkaProducer producer(config, nullptr, eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  KafkaProducer::Topic &topic = *producer.topic("t");
  Record record;
  record.topic = "t";
  record.value = {"1", 1};
  std::map<uint64_t, rd_kafka_resp_err_t> ends;
  auto ended = [&](size_t n) {
    for (auto end = patience_ends(std::chrono::seconds(30));
         ends.size() < n && std::chrono::steady_clock::now() < end;
         std::this_thread::sleep_for(std::chrono::milliseconds(10)))
      for (const KafkaProducer::Ending &ending : producer.ended().all)
        ends[ending.opaque >> 32] = ending.error;
    return ends.size() == n;
  };
  for (uint64_t n : {1, 2, 3}) /* the third waits on the broker's thread */
    ASSERT_EQ(producer.produce(topic, record, n << 32), RD_KAFKA_RESP_ERR_NO_ERROR);
  ASSERT_TRUE(ended(2));
  std::this_thread::sleep_for(std::chrono::milliseconds(500));

  std::future<void> purge;
  {
    std::lock_guard produces(LatePurge::mutex(producer));
    purge = std::async(std::launch::async, [&] { LatePurge::arrives(producer); });
    ASSERT_EQ(purge.wait_for(std::chrono::seconds(10)), std::future_status::ready) << "the third has not moved yet";
    std::this_thread::sleep_for(std::chrono::milliseconds(500));
    for (uint64_t n : {4, 5})
      ASSERT_EQ(LatePurge::queue(topic, n << 32), 0);
    std::this_thread::sleep_for(std::chrono::seconds(2));
  }
  producer.purge_if_needed();
  ASSERT_TRUE(ended(5));
  EXPECT_TRUE(producer.stopped());
  for (uint64_t n : {3, 4, 5})
    EXPECT_EQ(ends[n], RD_KAFKA_RESP_ERR__PURGE_QUEUE) << "out of order: message " << n;
}

/* The main thread may be busy for long, so nobody calls purge_if_needed() here. */
TEST(KafkaProducer, AnAcknowledgementWithoutAnOffsetStopsTheFollowersByItself) {
  KafkaBroker broker;
  broker.create_topic("t", 1);
  KafkaConfig config({{"bootstrap_servers", broker.address()},
                      {"batch_num_messages", "1"},
                      {"max_in_flight_requests_per_connection", "5"}},
                     nullptr);
  KafkaProducer producer(config, nullptr, eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  KafkaProducer::Topic &topic = *producer.topic("t");
  Record record;
  record.topic = "t";
  record.value = {"1", 1};
  std::vector<rd_kafka_resp_err_t> ends;
  auto ended = [&](size_t n) {
    for (int i = 0; i < 3000 && ends.size() < n; i++, std::this_thread::sleep_for(std::chrono::milliseconds(10)))
      for (const KafkaProducer::Ending &ending : producer.ended().all)
        ends.push_back(ending.error);
    return ends.size() == n;
  };

  size_t n = 0;
  ASSERT_EQ(producer.produce(topic, record, ++n << 32), RD_KAFKA_RESP_ERR_NO_ERROR);
  ASSERT_TRUE(ended(n));
  broker.slow_down(20);
  broker.fail_produce(RD_KAFKA_RESP_ERR_NOT_LEADER_FOR_PARTITION, 1);
  while (n < 500 && producer.produce(topic, record, (n + 1) << 32) == RD_KAFKA_RESP_ERR_NO_ERROR)
    n++;
  ASSERT_GT(n, 50u);
  ASSERT_TRUE(ended(n)) << ends.size();
  auto count = [&](rd_kafka_resp_err_t error) { return std::count(ends.begin(), ends.end(), error); };
  ASSERT_GT(count(RD_KAFKA_RESP_ERR__NO_OFFSET), 0);
  EXPECT_GT(count(RD_KAFKA_RESP_ERR__PURGE_QUEUE), 0) << "its followers went on";
  EXPECT_LT(count(RD_KAFKA_RESP_ERR_NO_ERROR), static_cast<ptrdiff_t>(n / 2)) << "its followers went on";
}

/* An event that breaks connections breaks those to its own broker. An outage of all brokers must not look like one.
 * A message to each broker comes first: before, librdkafka may have no connections but those to the addresses of
 * bootstrap_servers, whose end is no loss. */
TEST(KafkaProducer, BrokersThatDieTogetherAreOneLossOfAConnection) {
  KafkaBroker brokers(3);
  brokers.create_topic("t", 3);
  for (int broker = 1; broker <= 3; broker++)
    brokers.lead("t", broker - 1, broker);
  KafkaConfig config({{"bootstrap_servers", brokers.address()}}, nullptr);
  KafkaProducer producer(config, nullptr, eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK), true);
  KafkaProducer::Topic &topic = *producer.topic("t");
  const auto until = [](const auto &holds) {
    for (auto end = patience_ends(std::chrono::seconds(30)); !holds() && std::chrono::steady_clock::now() < end;)
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    return holds();
  };
  const auto connections = [&](int up, uint64_t lost) {
    return until([&] { return producer.brokers_up() == up && producer.connections_lost() == lost; })
               ? "as expected"
               : std::to_string(producer.brokers_up()) + " up, " + std::to_string(producer.connections_lost()) +
                     " lost";
  };
  Record record;
  record.topic = "t";
  record.value = {"1", 1};
  uint64_t sent = 0;
  size_t answered = 0;
  const auto each_broker_answers = [&] {
    for (record.partition = 0; record.partition < 3; record.partition++)
      if (producer.produce(topic, record, ++sent << 32) != RD_KAFKA_RESP_ERR_NO_ERROR)
        return false;
    return until([&] {
      for (const KafkaProducer::Ending &ending : producer.ended().all)
        answered += ending.error == RD_KAFKA_RESP_ERR_NO_ERROR;
      return answered == sent;
    });
  };
  ASSERT_TRUE(each_broker_answers());
  ASSERT_EQ(connections(3, 0), "as expected");
  for (int broker = 1; broker <= 3; broker++)
    brokers.stop(broker);
  ASSERT_EQ(connections(0, 1), "as expected");
  for (int broker = 1; broker <= 3; broker++)
    brokers.start(broker);
  ASSERT_TRUE(each_broker_answers());
  ASSERT_EQ(connections(3, 1), "as expected");
  brokers.stop(2);
  EXPECT_EQ(connections(2, 2), "as expected");
}

TEST(KafkaProducer, NoBrokerIsUpBeforeOneIsConnected) {
  KafkaBroker brokers;
  brokers.stop();
  KafkaConfig config({{"bootstrap_servers", brokers.address()}}, nullptr);
  KafkaProducer producer(config, nullptr, eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  KafkaProducer::Event error = producer.poll();
  for (auto end = patience_ends(std::chrono::seconds(30));
       rd_kafka_event_type(error.get()) != RD_KAFKA_EVENT_ERROR && std::chrono::steady_clock::now() < end;) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
    error = producer.poll();
  }
  ASSERT_EQ(rd_kafka_event_type(error.get()), RD_KAFKA_EVENT_ERROR) << "a connection was tried";
  EXPECT_EQ(producer.brokers_up(), 0);
  EXPECT_EQ(producer.times_up(), 0u);
}

/* Takes one connection and sends answers that nobody has asked for, until it is hung up on. */
class FloodingPeer {
public:
  FloodingPeer() {
    sockaddr_in any{};
    any.sin_family = AF_INET;
    any.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof any;
    auto *address = reinterpret_cast<sockaddr *>(&any);
    if (bind(listener_, address, size) != 0 || listen(listener_, 1) != 0 ||
        getsockname(listener_, address, &size) != 0)
      throw std::runtime_error("no listener");
    port_ = ntohs(any.sin_port);
    thread_ = std::thread([this] { run(); });
  }
  ~FloodingPeer() {
    shutdown(listener_, SHUT_RDWR);
    thread_.join();
    close(listener_);
  }
  std::string address() const { return "127.0.0.1:" + std::to_string(port_); }
  bool has_sent_much() const { return has_sent_much_; }
  bool was_hung_up_on() const { return was_hung_up_on_; }

private:
  void run() {
    constexpr char answer[] = {0, 0, 0, 4, 0x3a, 0x3a, 0x3a, 0x3a}; /* its length, and the number of its request */
    std::string answers;
    for (int i = 0; i < 10'000; i++)
      answers.append(answer, sizeof answer);
    const int client = accept(listener_, nullptr, nullptr);
    while (send(client, answers.data(), answers.size(), MSG_NOSIGNAL) > 0)
      has_sent_much_ = ++n_ > 100;
    was_hung_up_on_ = true;
    close(client);
  }

  const int listener_ = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  uint16_t port_ = 0;
  int n_ = 0;
  std::atomic<bool> has_sent_much_{false}, was_hung_up_on_{false};
  std::thread thread_;
};

bool soon(const auto &holds) {
  for (auto end = patience_ends(std::chrono::seconds(30)); !holds() && std::chrono::steady_clock::now() < end;)
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  return holds();
}

TEST(KafkaProducer, HangsUpOnABrokerThatFloodsIt) {
  PassedTime time;
  FloodingPeer peer;
  KafkaConfig config({{"bootstrap_servers", peer.address()}}, nullptr);
  KafkaProducer producer(config, nullptr, eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK), true);
  EXPECT_TRUE(soon([&] { return peer.was_hung_up_on(); }));
  const auto is_told_of = [&](const char *broker) {
    return producer.explain(peer.address() + broker + ": Disconnected (after 37ms in state UP)", false)
        .starts_with("the broker sends answers that nobody has asked for, so its connection was ended");
  };
  EXPECT_TRUE(soon([&] { return is_told_of("/bootstrap"); })) << "by the thread that has hung up";
  EXPECT_FALSE(is_told_of("/1")) << "another broker";
  time.pass(std::chrono::minutes(2));
  EXPECT_FALSE(is_told_of("/bootstrap")) << "another loss";
}

/* librdkafka's thread reads for as long as there is something to read. */
TEST(KafkaClient, EndsWhileABrokerFloodsIt) {
  FloodingPeer peer;
  KafkaConfig config({{"bootstrap_servers", peer.address()}}, nullptr);
  auto client = std::make_unique<KafkaClient>(config);
  ASSERT_TRUE(soon([&] { return peer.has_sent_much(); }));
  std::thread ending([&] { client.reset(); });
  EXPECT_TRUE(soon([&] { return peer.was_hung_up_on(); }));
  ending.join();
}

TEST(KafkaProducer, TheTopicOfASlotIsThereAsLongAsTheSlot) {
  KafkaConfig config({{"bootstrap_servers", "127.0.0.1:1"}}, nullptr);
  KafkaProducer producer(config, nullptr, eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  KafkaSlots slots;
  slots.take({1, 1, 1, false}, producer.topic("kept"), {}, false, {});
  for (int i = 0; i < 2500; i++)
    producer.topic("t" + std::to_string(i));
  EXPECT_STREQ(slots.oldest()->topic->name(), "kept");
  EXPECT_EQ(slots.oldest()->topic, producer.topic("kept"));
}

static std::string property(const char *name, Options server) {
  server["bootstrap_servers"] = "127.0.0.1:1";
  KafkaConf conf = KafkaConfig(server, nullptr).conf();
  char value[32] = "";
  size_t size = sizeof(value);
  rd_kafka_conf_get(conf.get(), name, value, &size);
  return value;
}

/* Consumers' clients read lz4, snappy and zstd only with another package. */
TEST(KafkaProducer, CompressesNothingUnlessTheUserSaysSo) {
  EXPECT_EQ(property("compression.codec", {}), "none");
  EXPECT_EQ(property("compression.codec", {{"compression_type", "lz4"}}), "lz4");
}

/* The circuit opens at the same time: nothing else is to be waited for then. */
TEST(KafkaProducer, SendsARequestAgainAfterThirtySeconds) {
  EXPECT_EQ(property("socket.timeout.ms", {}), "30000");
  EXPECT_EQ(property("socket.timeout.ms", {{"socket_timeout_ms", "5000"}}), "5000");
}

}  // namespace
}  // namespace outbox
