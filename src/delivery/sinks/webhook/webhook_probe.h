/* webhook_probe.h: tries to reach a webhook's endpoint, as a delivery would, and sends a test event on demand. */
#pragma once

#include <memory>

#include "delivery/engine/probe.h"
#include "delivery/sinks/webhook/webhook_config.h"

namespace outbox {

void probe_webhook(const std::shared_ptr<const WebhookConfig> &config, Probe &probe);

}  // namespace outbox
