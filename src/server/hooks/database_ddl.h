/*
 * database_ddl.h: stops the workers of a database before DROP DATABASE, RENAME, SET TABLESPACE and CREATE … TEMPLATE,
 * which fail while a session is connected. The workers restart when the command fails or leaves the database in
 * place.
 */
#pragma once

#include "server/base/server.h"

/* Registers the hook and the transaction callback, once per backend. Called from _PG_init. */
void database_ddl_init(void);
