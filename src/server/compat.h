/* compat.h: every test of PG_VERSION_NUM. Call sites are written in the newest API. */
#pragma once

#if PG_VERSION_NUM < 150000
#error "outbox needs PostgreSQL 15 or later"
#endif

#if PG_VERSION_NUM < 160000
#define OUTBOX_HAS_OWN_WAIT_EVENTS 0
#else
#define OUTBOX_HAS_OWN_WAIT_EVENTS (PG_VERSION_NUM >= 170000)
#endif
