/*
 * enqueue_types.cpp: the types of the key, the payload and the headers in a call of outbox.enqueue(). The parameter
 * aggregate_id is anycompatible, because the parser then takes any type as it is, and an untyped literal or parameter
 * for text; for anyelement, it would refuse the latter.
 */
#include "server/enqueue/enqueue_types.h"

extern "C" {
#include "catalog/pg_type.h"
#include "parser/parse_coerce.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
}

enum { KEY_ARGUMENT = 1, PAYLOAD_ARGUMENT = 3, HEADERS_ARGUMENT = 4 };

/* The type that the statement gives, without its domains. */
static Oid given_type(FmgrInfo *function, const Oid *declared, int argument) {
  if (!IsPolymorphicType(declared[argument]))
    return declared[argument];
  return getBaseType(get_fn_expr_argtype(function, argument));
}

static char category_of(Oid type) {
  char category;
  bool preferred;

  get_type_category_preferred(type, &category, &preferred);
  return category;
}

/* Types whose text is the same in every session, because events with equal keys are delivered in order. */
static bool is_key(Oid type) {
  switch (type) {
  case INT2OID:
  case INT4OID:
  case INT8OID:
  case NUMERICOID:
  case UUIDOID:
  case CHAROID:
    return true;
  default: {
    const char category = category_of(type);
    return category == TYPCATEGORY_STRING || category == TYPCATEGORY_ENUM;
  }
  }
}

static void find_key_type(EnqueueTypes *types, FmgrInfo *function, Oid type) {
  Oid output;
  bool is_varlena;

  if (!is_key(type))
    ereport(ERROR,
            (errcode(ERRCODE_DATATYPE_MISMATCH),
             errmsg("aggregate_id is of type %s, which cannot be a key", format_type_be(type)),
             errdetail("Events with equal keys are delivered in order. A key is a text, an integer, a numeric, "
                       "a uuid or an enum: the text of other types may depend on settings of the session."),
             errhint("Convert it: outbox.enqueue(aggregate_type, aggregate_id::text, event_type, payload).")));
  types->trim_key = type == BPCHAROID;
  if (IsBinaryCoercible(type, TEXTOID))
    return;
  getTypeOutputInfo(type, &output, &is_varlena);
  fmgr_info_cxt(output, &types->key_output, function->fn_mcxt);
}

/* Whether a payload of this type must be parsed as JSON. */
static bool must_parse(Oid type) {
  if (type == JSONBOID || type == JSONOID || category_of(type) == TYPCATEGORY_STRING)
    return type != JSONBOID;
  ereport(ERROR,
          (errcode(ERRCODE_DATATYPE_MISMATCH), errmsg("payload is of type %s, not JSON", format_type_be(type)),
           type == BYTEAOID ? errhint("For bytes, use outbox.enqueue_bytes(aggregate_type, aggregate_id, event_type, "
                                      "payload, 'application/avro').")
                            : errhint("Convert it: outbox.enqueue(aggregate_type, aggregate_id, event_type, "
                                      "to_jsonb(payload)).")));
  pg_unreachable();
}

EnqueueTypes *enqueue_types(FmgrInfo *function) {
  if (function->fn_extra == NULL) {
    EnqueueTypes *types = (EnqueueTypes *)MemoryContextAllocZero(function->fn_mcxt, sizeof *types);
    Oid *declared;
    int n;

    get_func_signature(function->fn_oid, &declared, &n);
    find_key_type(types, function, given_type(function, declared, KEY_ARGUMENT));
    types->is_bytes = declared[PAYLOAD_ARGUMENT] == BYTEAOID;
    if (!types->is_bytes) {
      types->parse_payload = must_parse(given_type(function, declared, PAYLOAD_ARGUMENT));
      types->parse_headers = declared[HEADERS_ARGUMENT] != JSONBOID;
    }
    function->fn_extra = types;
  }
  return (EnqueueTypes *)function->fn_extra;
}

Datum enqueue_key(EnqueueTypes *types, Datum key) {
  if (!OidIsValid(types->key_output.fn_oid))
    return key;
  char *text = OutputFunctionCall(&types->key_output, key);
  const int length = (int)strlen(text);

  return PointerGetDatum(cstring_to_text_with_len(text, types->trim_key ? bpchartruelen(text, length) : length));
}
