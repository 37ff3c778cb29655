/*
 * standard_webhooks.h: the Standard Webhooks format (https://www.standardwebhooks.com): body and signature.
 * Pure functions: no state, any thread.
 */
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "delivery/delivery.h"

namespace outbox::standard_webhooks {

/* Decodes 'whsec_' + base64 (the prefix is optional). Throws BadInput, which never contains the value, unless there
 * are 24 to 64 bytes. */
std::string decode_secret(const std::string &option, std::string_view secret);

/* The value of the webhook-signature header: 'v1,' + base64(HMAC-SHA256(key, id.timestamp.body)). */
std::string sign(std::string_view key, std::string_view id, int64_t timestamp, std::string_view body);

/* {"id", "type", "timestamp", "data"}. The payload's text is inserted unchanged, so that numbers keep all digits; a
 * NULL payload is null. A payload of raw bytes is itself the body. */
std::string body(const ob_event &event);

/* 2024-05-01T12:00:00.123Z */
std::string timestamp(int64_t unix_ms);

}  // namespace outbox::standard_webhooks
