/* compat.h: every test of PG_VERSION_NUM. Call sites are written in the newest API. */
#pragma once

#if PG_VERSION_NUM < 150000
#error "outbox needs PostgreSQL 15 or later"
#endif

/* Allocations that know their type, as 16 has them. The newest minor releases give them overflow checks by functions
 * that earlier ones do not export: built with those, the library could not be loaded there. */
#undef palloc_object
#undef palloc0_object
#undef palloc_array
#undef palloc0_array
#define palloc_object(type) ((type *)palloc(sizeof(type)))
#define palloc0_object(type) ((type *)palloc0(sizeof(type)))
#define palloc_array(type, count) ((type *)palloc(sizeof(type) * (count)))
#define palloc0_array(type, count) ((type *)palloc0(sizeof(type) * (count)))

/* 16 moved the macros of varlena values out of postgres.h. */
#if PG_VERSION_NUM >= 160000
extern "C" {
#include "varatt.h"
}
#endif

/* 16 folded the per-class ownership checks into one. */
#if PG_VERSION_NUM < 160000
#define outbox_owns_database(database, role) pg_database_ownercheck(database, role)
#else
#define outbox_owns_database(database, role) object_ownercheck(DatabaseRelationId, database, role)
#endif

/* 16 also folded the per-class privilege checks into one. */
#if PG_VERSION_NUM < 160000
#define outbox_server_aclcheck(server, role) pg_foreign_server_aclcheck(server, role, ACL_USAGE)
#else
#define outbox_server_aclcheck(server, role) object_aclcheck(ForeignServerRelationId, server, role, ACL_USAGE)
#endif

/* PostgreSQL 15 does not export the symbols that it looks up when they are compiled with -fvisibility=hidden. */
#if PG_VERSION_NUM < 160000
#undef PGDLLEXPORT
#define PGDLLEXPORT __attribute__((visibility("default")))
#endif

/* 16 renamed the field that holds a relation's file number. */
#if PG_VERSION_NUM < 160000
#define outbox_relation_file(relation) ((relation)->rd_node.relNode)
#else
#define outbox_relation_file(relation) ((relation)->rd_locator.relNumber)
#endif

/* 17 ties a wait event set to a resource owner. outbox's sets live as long as the process. */
#if PG_VERSION_NUM < 170000
#define outbox_create_wait_event_set(n) CreateWaitEventSet(TopMemoryContext, n)
#else
#define outbox_create_wait_event_set(n) CreateWaitEventSet(NULL, n)
#endif

/* An interrupted DROP DATABASE leaves this value in datconnlimit. Early minor releases have no name for it. */
#define OUTBOX_INVALID_DATABASE (-2)

/* 17 renamed the shared transaction variables. */
#if PG_VERSION_NUM < 170000
#define OUTBOX_OLDEST_CLOG_XID (ShmemVariableCache->oldestClogXid)
#else
#define OUTBOX_OLDEST_CLOG_XID (TransamVariables->oldestClogXid)
#endif

/* 18 decodes base64 into an array of uint8; older versions take char. */
#if PG_VERSION_NUM < 180000
#define outbox_b64_decode(text, length, bytes, room) pg_b64_decode(text, length, bytes, room)
#else
#define outbox_b64_decode(text, length, bytes, room) pg_b64_decode(text, length, (uint8 *)(bytes), room)
#endif

/* From 17 on, an extension can name its wait events. */
#if PG_VERSION_NUM < 170000
#define outbox_wait_event(name) PG_WAIT_EXTENSION
#else
#define outbox_wait_event(name) WaitEventExtensionNew(name)
#endif

/* 19 names the system caches by an enum where older ones take an int. */
#if PG_VERSION_NUM < 190000
#define OUTBOX_SYSCACHE int
#else
#define OUTBOX_SYSCACHE SysCacheIdentifier
#endif

/* The arguments with which one signal handler calls another. */
#if PG_VERSION_NUM < 190000
#define OUTBOX_SIGNAL_ARGUMENTS postgres_signal_arg
#else
#define OUTBOX_SIGNAL_ARGUMENTS postgres_signal_arg, pg_siginfo
#endif

/* 19 added a bitmask of options to heap_delete() and removed the flag for a move to another partition. */
#if PG_VERSION_NUM < 190000
#define outbox_heap_delete(table, ctid, command, failure)                                                            \
  heap_delete(table, ctid, command, InvalidSnapshot, false, failure, false)
#else
#define outbox_heap_delete(table, ctid, command, failure)                                                            \
  heap_delete(table, ctid, command, 0, InvalidSnapshot, false, failure)
#endif

/* 19 keeps the jsonb under construction in the state; older versions return it from each step. */
#if PG_VERSION_NUM < 190000
#define OUTBOX_JSONB_STATE JsonbParseState *
#define outbox_push_jsonb(state, token, value) pushJsonbValue(state, token, value)
#else
#define OUTBOX_JSONB_STATE JsonbInState
#define outbox_push_jsonb(state, token, value) (pushJsonbValue(state, token, value), (state)->result)
#endif
