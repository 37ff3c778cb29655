/*
 * kind_module.c: what makes a kind of sink a library that PostgreSQL loads. It is compiled into each kind by kind.mk,
 * apart from the kind's C++, which never sees PostgreSQL's headers. The checks of options are those of the core: it
 * calls the SinkKind in this library.
 */
#include "postgres.h"

#include "fmgr.h"

PG_MODULE_MAGIC;

/* PostgreSQL looks for this function in the libraries that this one needs as well, and would run outbox's again. */
PGDLLEXPORT void _PG_init(void);

void
_PG_init(void)
{
}

PGDLLEXPORT Datum outbox_kind_validator(PG_FUNCTION_ARGS);
PG_FUNCTION_INFO_V1(outbox_kind_validator);

Datum
outbox_kind_validator(PG_FUNCTION_ARGS)
{
	PGFunction	validator = load_external_function("$libdir/outbox", "outbox_validator", true, NULL);

	return validator(fcinfo);
}
