/* rabbitmq_probe.h: tries the options of a RabbitMQ sink, step by step. */
#pragma once

#include "delivery/engine/probe.h"
#include "rabbitmq_message.h"

namespace outbox::rabbitmq {

void probe_rabbitmq(const RabbitConfig &config, Probe &probe);

}  // namespace outbox::rabbitmq
