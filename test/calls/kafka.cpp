/* kafka.cpp: a Kafka producer against librdkafka's mock broker: as it should be, and with a topic that fails. */
#include "test/unit/kafka_broker.h"

#include "scenario.h"

namespace calls {
namespace {

constexpr int kafka_keys = 3, kafka_events = 3;

const Scenario kafka_plain("kafka", [] {
  KafkaBroker broker;
  broker.create_topic("t", 2);
  Worker worker;
  worker.open("kafka", {{"bootstrap_servers", broker.address()}, {"topic", "t"}});
  worker.deliver(kafka_keys, kafka_events);
  worker.close(5000);
});

/* A batch is refused as a whole: its events are sent again one at a time. */
const Scenario kafka_failing("kafka-failing", [] {
  KafkaBroker broker;
  broker.create_topic("t", 1);
  broker.fail(0, RD_KAFKA_RESP_ERR_INVALID_RECORD, 1);
  Worker worker;
  worker.open("kafka", {{"bootstrap_servers", broker.address()}, {"topic", "t"}, {"linger_ms", "20"}});
  worker.deliver(kafka_keys, kafka_events);
  worker.close(5000);
});

/* It is closed with events in flight. */
const Scenario kafka_closed("kafka-closed", [] {
  KafkaBroker broker;
  broker.create_topic("t", 1);
  broker.slow_down(2000);
  Worker worker;
  worker.open("kafka", {{"bootstrap_servers", broker.address()}, {"topic", "t"}});
  worker.submit_some(kafka_keys, kafka_events);
  worker.wait(50);
  worker.collect();
  worker.close(100);
});

}  // namespace
}  // namespace calls
