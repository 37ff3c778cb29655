/* aws_probe.h: outbox.probe() for a sink of AWS. */
#pragma once

#include "aws_config.h"
#include "delivery/engine/probe.h"

namespace outbox::aws_sink {

void probe_aws(const std::shared_ptr<const AwsConfig> &config, Probe &probe);

}  // namespace outbox::aws_sink
