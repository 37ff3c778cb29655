/* kafka_probe.h: probes a Kafka cluster with a sink's options, without sending an event. */
#pragma once

#include <memory>

#include "delivery/engine/probe.h"
#include "kafka_config.h"

namespace outbox {

/* Returns librdkafka's client, whose destructor may wait for its threads. */
std::shared_ptr<void> probe_kafka(const KafkaConfig &config, Probe &probe);

}  // namespace outbox
