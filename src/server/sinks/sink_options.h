/* sink_options.h: reads the options of a sink from the catalog. */
#pragma once

#include "server/base/server.h"

#include "delivery/delivery.h"

/* The options of a sink. They are copied into `context`, because the sink is opened after the transaction. The caller
 * deletes the context. */
typedef struct SinkOptions {
  ob_sink_options options;
  MemoryContext context;
} SinkOptions;

/* Reads the options of the sink's server and of PUBLIC's user mapping. `*fingerprint` changes with everything that
 * decides how the sink is opened: name, options, the owner's superuser attribute and outbox.allow_networks. In a
 * transaction. */
SinkOptions sink_options_read(Oid server_oid, const char *name, uint64 *fingerprint);
