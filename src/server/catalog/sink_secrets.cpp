/*
 * sink_secrets.cpp: decides as pg_user_mappings does about PUBLIC's options: the server's owner and superusers may
 * read them. Their names are no secret, and the owner of the extension, who may be no superuser, sees those.
 */
#include "server/catalog/sink_secrets.h"

#include "server/base/sql_function.h"
#include "server/catalog/wrappers.h"

extern "C" {
#include "access/htup_details.h"
#include "catalog/pg_foreign_server.h"
#include "catalog/pg_type.h"
#include "catalog/pg_user_mapping.h"
#include "miscadmin.h"
#include "utils/acl.h"
#include "utils/array.h"
#include "utils/builtins.h"
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

/* outbox_internal.mapping_options(server): the names of the options of PUBLIC's user mapping; NULL without one. */
SQL_FUNCTION(outbox_mapping_options) {
  size_t n;

  HeapTuple tuple = SearchSysCache2(USERMAPPINGUSERSERVER, ObjectIdGetDatum(InvalidOid), PG_GETARG_DATUM(0));
  if (!HeapTupleIsValid(tuple))
    PG_RETURN_NULL();
  ob_option *options = options_of(USERMAPPINGUSERSERVER, tuple, Anum_pg_user_mapping_umoptions, &n);
  ReleaseSysCache(tuple);
  Datum *names = (Datum *)palloc(sizeof(Datum) * (n + 1));
  for (size_t i = 0; i < n; i++)
    names[i] = CStringGetTextDatum(options[i].name);
  PG_RETURN_ARRAYTYPE_P(construct_array(names, (int)n, TEXTOID, -1, false, TYPALIGN_INT));
}
