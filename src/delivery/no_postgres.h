/*
 * no_postgres.h: makes a compilation fail that includes PostgreSQL's headers in the delivery library, in either
 * order. PostgreSQL's functions report errors by longjmp, which skips destructors, so this library must not call
 * them.
 */
#pragma once

#if defined(PG_VERSION_NUM) || defined(POSTGRES_H)
#error "src/delivery must not include PostgreSQL's headers"
#endif

/* postgres.h cannot be compiled without these words, so including it later fails. */
#pragma GCC poison ereport palloc pg_unreachable MemoryContextData
