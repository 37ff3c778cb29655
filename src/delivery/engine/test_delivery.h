/* test_delivery.h: the last step of a probe: an event that says it is a test goes through a sink like any other. */
#pragma once

#include <memory>

#include "delivery/engine/probe.h"

namespace outbox {

/* On the probe's thread. Opens a sink of its own with this configuration, delivers the test event by it, and records
 * the step "send". Returns what may take long to destroy. Throws what opening the sink throws. */
std::shared_ptr<void> deliver_test_event(const SinkKind &kind, std::shared_ptr<const SinkConfig> config,
                                         Probe &probe);

}  // namespace outbox
