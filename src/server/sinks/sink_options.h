/* sink_options.h: what the catalog says of a sink, copied out of the transaction. */
#pragma once

#include "server/base/server.h"

#include "delivery/delivery.h"

/* What the catalog says of a sink, copied out of the transaction so that it can be opened after it. */
typedef struct SinkOptions {
  ob_option *options;
  size_t n_options;
  ob_option *mapping;
  size_t n_mapping;
  bool owner_is_superuser;
  MemoryContext context;
} SinkOptions;

/* In a transaction: reads the options of the sink's server and of PUBLIC's user mapping, into a memory context of
 * their own. `*fingerprint` changes with them, and with whatever else decides how the sink is opened. */
SinkOptions sink_options_read(Oid server_oid, const char *name, uint64 *fingerprint);
