/* wrappers.h: our foreign-data wrappers. */
#pragma once

#include "server/base/server.h"

#include "delivery/delivery.h"

/* Installs the hook that keeps user mappings to PUBLIC. Called from _PG_init. */
void wrappers_init(void);

/* Tells the delivery library what ${database} is: to be called before it parses options. Needs a transaction. */
void wrappers_name_database(void);

/* The kind of sink that a foreign server of this wrapper is ("kafka": the wrapper is outbox_kafka, and its validator,
 * kafka_validator, is ours); false when it is somebody else's. Needs a transaction. */
bool wrapper_kind(Oid wrapper_oid, char kind[NAMEDATALEN]);

/* The generic options of a catalog row as the delivery API takes them, palloc'd. NULL bits aside: a null array is
 * none. */
ob_option *wrapper_options(Datum options, bool isnull, size_t *n);
