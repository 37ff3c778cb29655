/* sql_function.h: SQL_FUNCTION(outbox_x) { ... } defines a function that the SQL script names. The library is
 * compiled with -fvisibility=hidden, and the declaration in PostgreSQL 15's macro does not export the symbol. */
#pragma once

#include "server/base/server.h"

#define SQL_FUNCTION(name)                                                                                           \
  extern "C" {                                                                                                       \
  PGDLLEXPORT Datum name(PG_FUNCTION_ARGS);                                                                          \
  PG_FUNCTION_INFO_V1(name);                                                                                         \
  }                                                                                                                  \
  Datum name(PG_FUNCTION_ARGS)
