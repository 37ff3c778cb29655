/* redis_probe.h: tries the options of a Redis sink, step by step. */
#pragma once

#include "delivery/engine/probe.h"
#include "entry.h"

namespace outbox::redis {

void probe_redis(const RedisConfig &config, Probe &probe);

}  // namespace outbox::redis
