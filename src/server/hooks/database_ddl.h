/*
 * database_ddl.h: workers get out of the way of DROP DATABASE, RENAME, SET TABLESPACE and CREATE … TEMPLATE, which
 * all fail while anyone is connected, and come back when the command fails or leaves the database in place.
 */
#pragma once

#include "server/base/server.h"

void database_ddl_init(void);
