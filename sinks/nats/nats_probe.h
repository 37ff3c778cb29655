/* nats_probe.h: tries the options of a NATS sink, step by step. */
#pragma once

#include "delivery/engine/probe.h"
#include "nats_message.h"

namespace outbox::nats {

void probe_nats(const NatsConfig &config, Probe &probe);

}  // namespace outbox::nats
