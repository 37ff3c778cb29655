/*
 * kind_module.c: what makes a kind of sink a library that PostgreSQL loads. It is compiled into each kind by kind.mk,
 * apart from the kind's C++, which never sees PostgreSQL's headers. The validator is the core's: it calls the check of
 * options in this library.
 */
#include "postgres.h"

#include "fmgr.h"

#include "delivery/kind.h"

PG_MODULE_MAGIC;

/* From OUTBOX_SINK_KIND(). */
extern const ob_sink_kind *outbox_make_sink_kind(const char *version, int pg_version);

PGDLLEXPORT const ob_sink_kind *_PG_outbox_sink_kind_init(void);

const ob_sink_kind *
_PG_outbox_sink_kind_init(void)
{
	return outbox_make_sink_kind(OUTBOX_KIND_VERSION, PG_VERSION_NUM);
}

PGDLLEXPORT Datum outbox_kind_validator(PG_FUNCTION_ARGS);
PG_FUNCTION_INFO_V1(outbox_kind_validator);

Datum
outbox_kind_validator(PG_FUNCTION_ARGS)
{
	PGFunction	validator = load_external_function("$libdir/outbox", "outbox_validator", true, NULL);

	return validator(fcinfo);
}
