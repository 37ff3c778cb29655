/* wrappers.h: outbox's foreign-data wrappers, their validator and their options. */
#pragma once

#include "server/base/server.h"
#include "server/catalog/kind_library.h"

#include "delivery/delivery.h"

/* Installs the hook that keeps user mappings to PUBLIC. Called from _PG_init. */
void wrappers_init(void);

/* Tells the delivery library the values of ${database} and ${timeline}; call it before the library parses options or
 * makes messages. In a transaction. */
void wrappers_tell_origin(void);

/* Sets the kind of sink of this wrapper, "kafka" for outbox_kafka with the validator kafka_validator, and loads so
 * much of it. Returns false for a wrapper that is not outbox's. In a transaction. */
bool wrapper_kind(Oid wrapper_oid, char kind[NAMEDATALEN], KindPart part);

/* Converts the options array of a catalog row for the delivery API; palloc'd. A null array has no options. */
ob_option *wrapper_options(Datum options, bool isnull, size_t *n);
