/* webhook_probe.h: probes a webhook's endpoint in the way of a delivery, and sends a test event on request. */
#pragma once

#include <memory>

#include "delivery/engine/probe.h"
#include "webhook_config.h"

namespace outbox {

void probe_webhook(const std::shared_ptr<const WebhookConfig> &config, Probe &probe);

}  // namespace outbox
