/*
 * sink_secrets.cpp: decides as pg_user_mappings does about PUBLIC's options: the server's owner and superusers may
 * read them.
 */
#include "server/catalog/sink_secrets.h"

#include "server/catalog/wrappers.h"

extern "C" {
#include "access/htup_details.h"
#include "catalog/pg_foreign_server.h"
#include "catalog/pg_user_mapping.h"
#include "miscadmin.h"
#include "utils/acl.h"
#include "utils/syscache.h"
}

static ob_option *options_of(OUTBOX_SYSCACHE cache, HeapTuple tuple, AttrNumber column, size_t *n) {
  bool is_null;
  Datum options = SysCacheGetAttr(cache, tuple, column, &is_null);

  return wrapper_options(options, is_null, n);
}

ob_checker *sink_checker_with_secrets(Oid server_oid, const char *kind) {
  size_t n_options, n_mapping = 0;
  ob_error error; /* not reported: it could contain part of a secret */

  HeapTuple server = SearchSysCache1(FOREIGNSERVEROID, ObjectIdGetDatum(server_oid));
  if (!HeapTupleIsValid(server))
    return NULL;
  bool may_read = has_privs_of_role(GetUserId(), ((Form_pg_foreign_server)GETSTRUCT(server))->srvowner);
  ob_option *options = options_of(FOREIGNSERVEROID, server, Anum_pg_foreign_server_srvoptions, &n_options);
  ReleaseSysCache(server);
  if (!may_read)
    return NULL;
  HeapTuple tuple =
      SearchSysCache2(USERMAPPINGUSERSERVER, ObjectIdGetDatum(InvalidOid), ObjectIdGetDatum(server_oid));
  ob_option *mapping = wrapper_options((Datum)0, true, &n_mapping);
  if (HeapTupleIsValid(tuple)) {
    mapping = options_of(USERMAPPINGUSERSERVER, tuple, Anum_pg_user_mapping_umoptions, &n_mapping);
    ReleaseSysCache(tuple);
  }
  return ob_checker_open_with_secrets(kind, options, n_options, mapping, n_mapping, &error);
}
