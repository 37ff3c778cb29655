/* sql_function.h: SQL_FUNCTION(outbox_x) { ... } defines a function that the SQL script names. Our symbols are hidden
 * unless declared otherwise, and PostgreSQL 15 does not declare it. */
#pragma once

#include "server/base/server.h"

#define SQL_FUNCTION(name)                                                                                           \
  extern "C" {                                                                                                       \
  PGDLLEXPORT Datum name(PG_FUNCTION_ARGS);                                                                          \
  PG_FUNCTION_INFO_V1(name);                                                                                         \
  }                                                                                                                  \
  Datum name(PG_FUNCTION_ARGS)
