/*
 * http_wait.h: header fields by which an HTTP answer says when to come again. Pure functions: milliseconds from now,
 * a day at most; -1 where nothing is said, or nothing that makes sense (a moment that is over, more than a year,
 * text).
 */
#pragma once

#include <cstdint>
#include <string_view>

namespace outbox {

/* Retry-After: seconds, or an HTTP date in any of its three forms. `now` is Unix time, in seconds. */
int64_t retry_after_ms(std::string_view value, int64_t now);

/* RateLimit-Remaining and RateLimit-Reset, in seconds: a wait only where nothing remains. */
int64_t rate_limit_ms(std::string_view remaining, std::string_view reset);

}  // namespace outbox
