/*
 * sink_secrets.cpp: decides as pg_user_mappings does about PUBLIC's options: the server's owner and superusers may
 * read them. Their names are no secret, and the owner of the extension, who may be no superuser, sees those, and
 * advice that is made of the values and contains none.
 */
#include "server/catalog/sink_secrets.h"

#include <span>

#include "server/base/delivery_error.h"
#include "server/base/library_version.h"
#include "server/base/sql_function.h"
#include "server/catalog/wrappers.h"
#include "server/storage/sql.h"

extern "C" {
#include "access/htup_details.h"
#include "catalog/pg_foreign_server.h"
#include "catalog/pg_type.h"
#include "catalog/pg_user_mapping.h"
#include "funcapi.h"
#include "mb/pg_wchar.h"
#include "miscadmin.h"
#include "utils/acl.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/syscache.h"
#include "utils/tuplestore.h"
}

static ob_option *options_of(OUTBOX_SYSCACHE cache, HeapTuple tuple, AttrNumber column, size_t *n) {
  bool is_null;
  Datum options = SysCacheGetAttr(cache, tuple, column, &is_null);

  return wrapper_options(options, is_null, n);
}

/* The options of PUBLIC's user mapping; NULL without one. */
static ob_option *public_mapping(Oid server, size_t *n) {
  HeapTuple tuple = SearchSysCache2(USERMAPPINGUSERSERVER, ObjectIdGetDatum(InvalidOid), ObjectIdGetDatum(server));

  *n = 0;
  if (!HeapTupleIsValid(tuple))
    return NULL;
  ob_option *options = options_of(USERMAPPINGUSERSERVER, tuple, Anum_pg_user_mapping_umoptions, n);
  ReleaseSysCache(tuple);
  return options;
}

ob_checker *sink_checker_with_secrets(Oid server_oid, const char *kind) {
  size_t n_options, n_mapping;
  ob_error error; /* not reported: it could contain part of a secret */

  HeapTuple server = SearchSysCache1(FOREIGNSERVEROID, ObjectIdGetDatum(server_oid));
  if (!HeapTupleIsValid(server))
    return NULL;
  bool may_read = has_privs_of_role(GetUserId(), ((Form_pg_foreign_server)GETSTRUCT(server))->srvowner);
  ob_option *options = options_of(FOREIGNSERVEROID, server, Anum_pg_foreign_server_srvoptions, &n_options);
  ReleaseSysCache(server);
  if (!may_read)
    return NULL;
  ob_option *mapping = public_mapping(server_oid, &n_mapping);
  const ob_sink_options given = {options, n_options, mapping, n_mapping, true, false};
  return ob_kind(kind)->checker_open(kind, &given, &error);
}

/* outbox_internal.mapping_options(server): the names of the options of PUBLIC's user mapping; NULL without one. */
SQL_FUNCTION(outbox_mapping_options) {
  size_t n;

  ob_option *options = public_mapping(PG_GETARG_OID(0), &n);
  if (options == NULL)
    PG_RETURN_NULL();
  Datum *names = palloc_array(Datum, n + 1);
  for (size_t i = 0; i < n; i++)
    names[i] = CStringGetTextDatum(options[i].name);
  return text_array(names, (int)n);
}

static Datum text_of(const char *text) {
  return CStringGetTextDatum(pg_any_to_server(text, (int)strlen(text), PG_UTF8));
}

/* outbox_internal.sink_advice(server): none for a sink that was dropped meanwhile. */
SQL_FUNCTION(outbox_sink_advice) {
  ReturnSetInfo *result = rows_of(fcinfo, 4);
  const Oid server_oid = PG_GETARG_OID(0);
  size_t n_options, n_mapping;
  char kind[NAMEDATALEN];
  ob_advice advice[8];

  HeapTuple server = SearchSysCache1(FOREIGNSERVEROID, ObjectIdGetDatum(server_oid));
  if (!HeapTupleIsValid(server))
    PG_RETURN_NULL();
  const Oid wrapper = ((Form_pg_foreign_server)GETSTRUCT(server))->srvfdw;
  const char *name = quote_identifier(pstrdup(NameStr(((Form_pg_foreign_server)GETSTRUCT(server))->srvname)));
  ob_option *options = options_of(FOREIGNSERVEROID, server, Anum_pg_foreign_server_srvoptions, &n_options);
  ReleaseSysCache(server);
  if (!wrapper_kind(wrapper, kind, KIND_WHOLE))
    PG_RETURN_NULL();
  wrappers_tell_origin();
  ob_option *mapping = public_mapping(server_oid, &n_mapping);
  const char *utf8_name = pg_server_to_any(name, (int)strlen(name), PG_UTF8);
  const ob_sink_options given = {options, n_options, mapping, n_mapping, mapping != NULL, false};
  const size_t n = delivery_count(ob_kind(kind)->advise(kind, utf8_name, &given, advice, lengthof(advice)));
  for (const ob_advice &one : std::span(advice, n)) {
    Datum values[] = {text_of(one.check), text_of(one.may_be_meant ? "ok" : "warning"), text_of(one.detail),
                      text_of(one.hint)};
    bool nulls[lengthof(values)] = {false};
    tuplestore_putvalues(result->setResult, result->setDesc, values, nulls);
  }
  PG_RETURN_NULL();
}
