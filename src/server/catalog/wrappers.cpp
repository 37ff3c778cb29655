/*
 * wrappers.cpp: a wrapper is a kind of sink when both its name and its validator's contain the kind, and the
 * validator is this library's, or that of a library which calls this one's. So an added kind needs no change of the
 * install script, and a dump contains its wrapper. Only superusers can create wrappers and functions in C.
 */
#include "server/catalog/wrappers.h"

extern "C" {
#include "access/htup_details.h"
#include "access/reloptions.h"
#include "access/xact.h"
#include "catalog/objectaccess.h"
#include "catalog/pg_foreign_data_wrapper.h"
#include "catalog/pg_foreign_server.h"
#include "catalog/pg_language.h"
#include "catalog/pg_proc.h"
#include "catalog/pg_type.h"
#include "catalog/pg_user_mapping.h"
#include "commands/dbcommands.h"
#include "commands/defrem.h"
#include "foreign/foreign.h"
#include "funcapi.h"
#include "mb/pg_wchar.h"
#include "miscadmin.h"
#include "common/string.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/syscache.h"
}

#include "server/base/catalog_row.h"
#include "server/base/delivery_error.h"
#include "server/base/library_version.h"
#include "server/base/sql_function.h"
#include "server/catalog/sink_ddl.h"
#include "server/catalog/definition_guard.h"
#include "server/catalog/table_guard.h"
#include "server/shmem/wake.h"
#include "server/storage/sql.h"
#include "server/storage/wal_timeline.h"

static const char WRAPPER_PREFIX[] = "outbox_";
static const char VALIDATOR_SUFFIX[] = "_validator";

static object_access_hook_type next_access_hook;

void wrappers_tell_origin(void) {
  Assert(IsTransactionState());
  static TimeLineID told = 0; /* a promotion changes it; a database with sessions cannot be renamed */
  const TimeLineID timeline = wal_timeline();
  char *name = told == timeline ? NULL : get_database_name(MyDatabaseId);

  if (name == NULL)
    return;
  ob_set_origin(pg_server_to_any(name, (int)strlen(name), PG_UTF8), timeline);
  told = timeline;
}

static char *proc_text(HeapTuple tuple, AttrNumber column) {
  bool isnull;
  Datum value = SysCacheGetAttr(PROCOID, tuple, column, &isnull);

  return isnull ? pstrdup("") : TextDatumGetCString(value);
}

/* A kind in a library of its own has a validator of this name, from kind_module.c; the library is loaded then. */
static const char OWN_LIBRARY_VALIDATOR[] = "outbox_kind_validator";

/* Sets the kind that this validator checks; returns false when it is no validator of a kind. */
static bool validator_kind(Oid validator, char kind[NAMEDATALEN], KindPart part) {
  HeapTuple tuple = SearchSysCache1(PROCOID, ObjectIdGetDatum(validator));
  bool ours = false;

  if (!HeapTupleIsValid(tuple))
    return false;
  Form_pg_proc proc = (Form_pg_proc)GETSTRUCT(tuple);
  if (proc->prolang == ClanguageId && pg_str_endswith(NameStr(proc->proname), VALIDATOR_SUFFIX)) {
    char *symbol = proc_text(tuple, Anum_pg_proc_prosrc), *file = proc_text(tuple, Anum_pg_proc_probin);
    bool in_own_library = strcmp(symbol, OWN_LIBRARY_VALIDATOR) == 0;
    ours = in_own_library || strcmp(symbol, "outbox_validator") == 0;
    strlcpy(kind, NameStr(proc->proname), strlen(NameStr(proc->proname)) - strlen(VALIDATOR_SUFFIX) + 1);
    if (in_own_library)
      kind_library_load(kind, validator, file, part);
  }
  ReleaseSysCache(tuple);
  return ours;
}

bool wrapper_kind(Oid wrapper_oid, char kind[NAMEDATALEN], KindPart part) {
  Assert(IsTransactionState());
  ForeignDataWrapper *wrapper = GetForeignDataWrapper(wrapper_oid);
  size_t prefix = strlen(WRAPPER_PREFIX);

  return strncmp(wrapper->fdwname, WRAPPER_PREFIX, prefix) == 0 &&
         validator_kind(wrapper->fdwvalidator, kind, part) && strcmp(wrapper->fdwname + prefix, kind) == 0;
}

ob_option *wrapper_options(Datum options, bool isnull, size_t *n) {
  List *list = isnull ? NIL : untransformRelOptions(options);
  ob_option *out = palloc0_array(ob_option, list_length(list) + 1);
  ListCell *cell;

  *n = 0;
  foreach (cell, list) {
    DefElem *option = (DefElem *)lfirst(cell);
    out[*n].name = option->defname;
    out[*n].value = option->arg ? defGetString(option) : "";
    (*n)++;
  }
  return out;
}

/* outbox_internal.server_options(wrapper, of_target): none if the kind is not available, or the wrapper has been
 * dropped. */
SQL_FUNCTION(outbox_server_options) {
  const Oid wrapper = PG_GETARG_OID(0);
  const ob_scope scope = PG_GETARG_BOOL(1) ? OB_TARGET : OB_SERVER;
  char kind[NAMEDATALEN];
  const char *names[128];
  Datum texts[lengthof(names)];
  size_t n = 0;

  if (SearchSysCacheExists1(FOREIGNDATAWRAPPEROID, ObjectIdGetDatum(wrapper)) &&
      wrapper_kind(wrapper, kind, KIND_MESSAGES))
    n = Min(delivery_count(ob_kind(kind)->option_names(kind, scope, names, lengthof(names))), lengthof(names));
  for (size_t i = 0; i < n; i++)
    texts[i] = CStringGetTextDatum(names[i]);
  return text_array(texts, (int)n);
}

/* outbox_internal.client_library(wrapper): NULLs of a kind that does not tell, or is not available. */
SQL_FUNCTION(outbox_client_library) {
  TupleDesc desc = row_type_of(fcinfo, 4);
  const Oid wrapper = PG_GETARG_OID(0);
  char kind[NAMEDATALEN];
  ob_client_library library;
  Datum values[4] = {0};
  bool nulls[lengthof(values)] = {true, true, true, true};

  memset(&library, 0, sizeof(library));
  if (SearchSysCacheExists1(FOREIGNDATAWRAPPEROID, ObjectIdGetDatum(wrapper)) &&
      wrapper_kind(wrapper, kind, KIND_WHOLE))
    ob_kind(kind)->client_library(&library);
  if (library.versions[0]) {
    values[0] = CStringGetTextDatum(library.versions);
    nulls[0] = false;
  }
  if (library.advice.message[0]) {
    const char *form = library.advice.detail[0] ? "%s. %s" : "%s.";
    values[1] = CStringGetTextDatum(library.fitness == OB_FIT         ? "ok"
                                    : library.fitness == OB_DEFECTIVE ? "warning"
                                                                      : "error");
    values[2] = CStringGetTextDatum(psprintf(form, library.advice.message, library.advice.detail));
    values[3] = CStringGetTextDatum(library.advice.hint);
    nulls[1] = nulls[2] = false;
    nulls[3] = library.advice.hint[0] == '\0';
  }
  PG_RETURN_DATUM(HeapTupleGetDatum(heap_form_tuple(desc, values, nulls)));
}

/* The validator of all kinds: its SQL name says which kind, as in outbox_internal.kafka_validator. */
SQL_FUNCTION(outbox_validator) {
  Oid catalog = PG_GETARG_OID(1);
  size_t n;
  ob_option *options = wrapper_options(PG_GETARG_DATUM(0), false, &n);
  char kind[NAMEDATALEN];
  ob_common common;
  ob_error error;

  if (!validator_kind(fcinfo->flinfo->fn_oid, kind, KIND_WHOLE))
    ereport(ERROR, (errcode(ERRCODE_INVALID_FUNCTION_DEFINITION),
                    errmsg("a validator of outbox must be named after its kind of sink"),
                    errhint("The function is <kind>_validator, the wrapper outbox_<kind>.")));

  wrappers_tell_origin();
  if (catalog == ForeignServerRelationId || catalog == UserMappingRelationId) {
    ob_scope scope = catalog == ForeignServerRelationId ? OB_SERVER : OB_USER_MAPPING;
    const ob_sink_options given = {options, n, options, n, true, false};
    if (!ob_kind(kind)->check_options(kind, scope, &given, superuser(), &error))
      delivery_option_error(&error, kind, scope);
  } else if (n > 0) {
    ereport(ERROR, (errcode(ERRCODE_FDW_INVALID_OPTION_NAME), errmsg("invalid option \"%s\"", options[0].name),
                    errdetail("Only servers and user mappings of this wrapper have options."),
                    errhint("Give it to CREATE SERVER or CREATE USER MAPPING.")));
  }
  if (catalog == ForeignDataWrapperRelationId && !ob_kind(kind)->common_options(kind, NULL, 0, &common, &error))
    delivery_option_error(&error, kind, OB_SERVER);
  PG_RETURN_VOID();
}

/* The worker uses only the mapping FOR PUBLIC. A mapping for a role would have no effect. */
static void refuse_private_mapping(Oid mapping_oid) {
  /* The running command has written the row. */
  HeapTuple tuple =
      catalog_row_as_written(UserMappingRelationId, UserMappingOidIndexId, Anum_pg_user_mapping_oid, mapping_oid);
  char kind[NAMEDATALEN];

  if (HeapTupleIsValid(tuple)) {
    Form_pg_user_mapping mapping = (Form_pg_user_mapping)GETSTRUCT(tuple);
    ForeignServer *server = GetForeignServer(mapping->umserver);
    if (OidIsValid(mapping->umuser) && wrapper_kind(server->fdwid, kind, KIND_MESSAGES))
      ereport(ERROR, (errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
                      errmsg("user mapping for sink \"%s\" must be for PUBLIC", server->servername),
                      errdetail("The worker delivers for all roles and reads no other mapping."),
                      errhint("Use CREATE USER MAPPING FOR PUBLIC SERVER %s; only the owner of the server and "
                              "superusers can read its options.",
                              quote_identifier(server->servername))));
  }
}

static void on_object_access(ObjectAccessType access, Oid class_id, Oid object_id, int sub_id, void *arg) {
  if (next_access_hook)
    next_access_hook(access, class_id, object_id, sub_id, arg);
  /* Wakes the worker at the commit of each change of a sink, so that it need not wait for its next poll. */
  if (class_id == ForeignServerRelationId || class_id == UserMappingRelationId)
    wake_when_sinks_changed();
  if (access == OAT_POST_CREATE && class_id == UserMappingRelationId)
    refuse_private_mapping(object_id);
  sink_ddl_note(access, class_id, object_id);
  table_guard(access, class_id, object_id);
  definition_guard(access, class_id, object_id, sub_id, arg);
}

void wrappers_init(void) {
  sink_ddl_init();
  next_access_hook = object_access_hook;
  object_access_hook = on_object_access;
}
