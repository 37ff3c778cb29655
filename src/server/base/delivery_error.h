/* delivery_error.h: raises errors of the delivery library as PostgreSQL errors. */
#pragma once

#include "server/base/server.h"

#include "delivery/delivery.h"

/* Raises the error with the SQLSTATE of its kind. */
[[noreturn]] void delivery_error(const ob_error *error);

/* Raises the error with the SQLSTATE of its kind; CONTEXT names the sink. */
[[noreturn]] void delivery_error_of_sink(const ob_error *error, const char *sink);

/* The number that a function of a kind has returned. Raises an error when it was out of memory. */
size_t delivery_count(size_t n);

/* A WARNING: the event was enqueued, and this sink cannot send it. */
void delivery_warn_too_large(const ob_error *error, const char *sink);

/* Raises the error of an option of this sink kind, with DETAIL and HINT. The HINT for an unknown name is the closest
 * known one. */
[[noreturn]] void delivery_option_error(const ob_error *error, const char *kind, ob_scope scope);

/* Returns the most similar of the names, or NULL when all differ in more than half of their characters. */
const char *closest_match(const char *given, const char *const *names, size_t n);
