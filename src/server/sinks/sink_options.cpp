/*
 * sink_options.cpp: reads the options of a sink from the catalog. A fingerprint of the options decides whether a sink
 * must be opened anew after a change of the catalog.
 */
#include "server/sinks/sink_options.h"

#include "server/base/settings.h"
#include "server/catalog/wrappers.h"

extern "C" {
#include "access/htup_details.h"
#include "catalog/pg_foreign_server.h"
#include "catalog/pg_user_mapping.h"
#include "common/hashfn.h"
#include "miscadmin.h"
#include "utils/memutils.h"
#include "utils/syscache.h"
}

/* Reads the options of a catalog row, and adds them to the fingerprint. */
static ob_option *read_options(OUTBOX_SYSCACHE cache, HeapTuple tuple, AttrNumber column, size_t *n,
                               uint64 *fingerprint) {
  bool is_null;
  Datum datum = SysCacheGetAttr(cache, tuple, column, &is_null);
  ob_option *options = wrapper_options(datum, is_null, n);

  for (size_t i = 0; i < *n; i++) {
    *fingerprint = hash_combine64(
        *fingerprint, hash_bytes_extended((const unsigned char *)options[i].name, strlen(options[i].name), 0));
    *fingerprint = hash_combine64(
        *fingerprint, hash_bytes_extended((const unsigned char *)options[i].value, strlen(options[i].value), 1));
  }
  return options;
}

SinkOptions sink_options_read(Oid server_oid, const char *name, uint64 *fingerprint) {
  MemoryContext context = AllocSetContextCreate(TopMemoryContext, "outbox sink options", ALLOCSET_SMALL_SIZES);
  MemoryContext previous = MemoryContextSwitchTo(context);
  SinkOptions sink = {{}, context};
  ob_sink_options *given = &sink.options;

  given->mapping_known = true;
  /* The name is part of it, because the delivery library's messages contain it. */
  *fingerprint = hash_combine64(server_oid, hash_bytes_extended((const unsigned char *)name, strlen(name), 3));

  HeapTuple server = SearchSysCache1(FOREIGNSERVEROID, ObjectIdGetDatum(server_oid));
  if (HeapTupleIsValid(server)) {
    given->server =
        read_options(FOREIGNSERVEROID, server, Anum_pg_foreign_server_srvoptions, &given->n_server, fingerprint);
    given->owner_is_superuser = superuser_arg(((Form_pg_foreign_server)GETSTRUCT(server))->srvowner);
    *fingerprint = hash_combine64(*fingerprint, given->owner_is_superuser);
    ReleaseSysCache(server);
  }
  /* The worker uses only the mapping FOR PUBLIC. */
  HeapTuple mapping =
      SearchSysCache2(USERMAPPINGUSERSERVER, ObjectIdGetDatum(InvalidOid), ObjectIdGetDatum(server_oid));
  if (HeapTupleIsValid(mapping)) {
    *fingerprint = hash_combine64(*fingerprint, 1);
    given->mapping =
        read_options(USERMAPPINGUSERSERVER, mapping, Anum_pg_user_mapping_umoptions, &given->n_mapping, fingerprint);
    ReleaseSysCache(mapping);
  }
  if (setting_allow_networks)
    *fingerprint = hash_combine64(*fingerprint, hash_bytes_extended((const unsigned char *)setting_allow_networks,
                                                                    strlen(setting_allow_networks), 2));
  MemoryContextSwitchTo(previous);

  return sink;
}
