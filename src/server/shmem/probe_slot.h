/* probe_slot.h: what a session asks a worker to try, and what was found: outbox.probe(). */
#pragma once

#include "server/base/clock.h"

#include "delivery/delivery.h"

extern "C" {
#include "storage/latch.h"
}

#define OUTBOX_MAX_PROBES 64
#define OUTBOX_MAX_PROBE_STEPS 12

typedef enum ProbeState {
  PROBE_FREE,
  PROBE_WANTED, /* no worker has it yet */
  PROBE_RUNNING,
  PROBE_NO_SINK, /* the worker sees no such sink */
  PROBE_DONE
} ProbeState;

/* A session's question to a worker: outbox.probe(). The session that takes a slot also frees it. */
typedef struct ProbeSlot {
  ProbeState state;
  uint64 number; /* of the request, since the slot is used again */
  Oid database, server;
  bool send; /* a test event */
  Moment until;
  Latch *latch; /* the session's */
  int n_steps;
  ob_probe_step steps[OUTBOX_MAX_PROBE_STEPS];
} ProbeSlot;
