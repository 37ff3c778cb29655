/* compat.h: every test of PG_VERSION_NUM. Call sites are written in the newest API. */
#pragma once

#if PG_VERSION_NUM < 150000
#error "outbox needs PostgreSQL 15 or later"
#endif

/* 16 folded the per-class ownership checks into one. */
#if PG_VERSION_NUM < 160000
#define outbox_owns_database(database, role) pg_database_ownercheck(database, role)
#else
#define outbox_owns_database(database, role) object_ownercheck(DatabaseRelationId, database, role)
#endif

/* And the per-class checks of rights. */
#if PG_VERSION_NUM < 160000
#define outbox_server_aclcheck(server, role) pg_foreign_server_aclcheck(server, role, ACL_USAGE)
#else
#define outbox_server_aclcheck(server, role) object_aclcheck(ForeignServerRelationId, server, role, ACL_USAGE)
#endif

/* Only from 16 on does PostgreSQL itself undo -fvisibility=hidden for what it looks up. */
#if PG_VERSION_NUM < 160000
#undef PGDLLEXPORT
#define PGDLLEXPORT __attribute__((visibility("default")))
#endif

/* And how the file of a relation is called. */
#if PG_VERSION_NUM < 160000
#define outbox_relation_file(relation) ((relation)->rd_node.relNode)
#else
#define outbox_relation_file(relation) ((relation)->rd_locator.relNumber)
#endif

/* 17 ties a wait event set to a resource owner; ours live as long as the process. */
#if PG_VERSION_NUM < 170000
#define outbox_create_wait_event_set(n) CreateWaitEventSet(TopMemoryContext, n)
#else
#define outbox_create_wait_event_set(n) CreateWaitEventSet(NULL, n)
#endif

/* An interrupted DROP DATABASE leaves this in datconnlimit; the name came with a minor release. */
#define OUTBOX_INVALID_DATABASE (-2)

/* 17 renamed the shared transaction variables. */
#if PG_VERSION_NUM < 170000
#define OUTBOX_OLDEST_CLOG_XID (ShmemVariableCache->oldestClogXid)
#else
#define OUTBOX_OLDEST_CLOG_XID (TransamVariables->oldestClogXid)
#endif

/* 18 decodes base64 into bytes that are unsigned. */
#if PG_VERSION_NUM < 180000
#define outbox_b64_decode(text, length, bytes, room) pg_b64_decode(text, length, bytes, room)
#else
#define outbox_b64_decode(text, length, bytes, room) pg_b64_decode(text, length, (uint8 *)(bytes), room)
#endif

/* From 17 on an extension names what it waits for. */
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

/* What a signal handler that is called by another one is given. */
#if PG_VERSION_NUM < 190000
#define OUTBOX_SIGNAL_ARGUMENTS postgres_signal_arg
#else
#define OUTBOX_SIGNAL_ARGUMENTS postgres_signal_arg, pg_siginfo
#endif

/* 19 has options for a deletion, and no flag of its own for a move to another partition. */
#if PG_VERSION_NUM < 190000
#define outbox_heap_delete(table, ctid, command, failure)                                                            \
  heap_delete(table, ctid, command, InvalidSnapshot, false, failure, false)
#else
#define outbox_heap_delete(table, ctid, command, failure)                                                            \
  heap_delete(table, ctid, command, 0, InvalidSnapshot, false, failure)
#endif

/* 19 keeps what it makes of a jsonb in the state and not in the result of each step. */
#if PG_VERSION_NUM < 190000
#define OUTBOX_JSONB_STATE JsonbParseState *
#define outbox_push_jsonb(state, token, value) pushJsonbValue(state, token, value)
#else
#define OUTBOX_JSONB_STATE JsonbInState
#define outbox_push_jsonb(state, token, value) (pushJsonbValue(state, token, value), (state)->result)
#endif
