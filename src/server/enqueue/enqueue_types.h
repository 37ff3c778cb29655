/* enqueue_types.h: the types of the key, the payload and the headers in a call of outbox.enqueue() or
 * outbox.enqueue_bytes(). All their signatures are one function in C. */
#pragma once

#include "server/base/server.h"

extern "C" {
#include "fmgr.h"
}

typedef struct EnqueueTypes {
  FmgrInfo key_output; /* fn_oid is InvalidOid: the key has the representation of text */
  bool trim_key;       /* the key is char(n) */
  bool is_bytes;       /* outbox.enqueue_bytes() */
  bool parse_payload;  /* it is json or text, not jsonb */
  bool parse_headers;
} EnqueueTypes;

/* The types in this call of the statement, looked up once for each execution of the statement. Refuses a type of key
 * or payload that cannot be sent. */
EnqueueTypes *enqueue_types(FmgrInfo *function);

/* A key that is not NULL, as text. */
Datum enqueue_key(EnqueueTypes *types, Datum key);
