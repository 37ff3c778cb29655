/*
 * no_postgres.h: keeps PostgreSQL's headers out of the delivery library, whichever is included first. Its functions
 * leave by longjmp, which skips destructors: nothing here may call them.
 */
#pragma once

#if defined(PG_VERSION_NUM) || defined(POSTGRES_H)
#error "src/delivery must not include PostgreSQL's headers"
#endif

/* postgres.h cannot be read without these words, so including it later fails to compile. */
#pragma GCC poison ereport palloc pg_unreachable MemoryContextData
