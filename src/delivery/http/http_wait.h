/*
 * http_wait.h: the header fields in which an HTTP response asks for a pause. Pure functions. They return
 * milliseconds from now, at most one day; -1 if the field is absent or makes no sense (a time in the past, more
 * than a year, other text).
 */
#pragma once

#include <cstdint>
#include <string_view>

namespace outbox {

/* Retry-After: seconds, also with decimals, or an HTTP date in one of its three formats. Such a date is of the peer's
 * clock, so it counts from `date`, the value of the response's field Date. Without one it counts from `now`, Unix
 * time in seconds. */
int64_t retry_after_ms(std::string_view value, std::string_view date, int64_t now);

/* RateLimit-Remaining and RateLimit-Reset (seconds): a pause only if no request remains. */
int64_t rate_limit_ms(std::string_view remaining, std::string_view reset);

}  // namespace outbox
