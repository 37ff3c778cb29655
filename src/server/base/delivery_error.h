/* delivery_error.h: what the delivery library found wrong, as a PostgreSQL error. */
#pragma once

#include "server/base/server.h"

#include "delivery/delivery.h"

/* Raises it, with the SQLSTATE of its kind. */
[[noreturn]] void delivery_error(const ob_error *error);

/* Likewise for what that sink says of an event: CONTEXT names it. */
[[noreturn]] void delivery_error_of_sink(const ob_error *error, const char *sink);

/* Likewise for an option of a sink kind: an unknown name gets a HINT with the nearest known one. */
[[noreturn]] void delivery_option_error(const ob_error *error, const char *kind, ob_scope scope);

/* The name that a user may have meant, or NULL when none is near. */
const char *closest_match(const char *given, const char *const *names, size_t n);
