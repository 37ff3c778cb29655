/* grpc_probe.h: tries a sink's options step by step. */
#pragma once

#include <memory>

#include "delivery/engine/probe.h"
#include "grpc_config.h"

namespace outbox::grpc {

void probe_grpc(const std::shared_ptr<const GrpcConfig> &config, Probe &probe);

}  // namespace outbox::grpc
