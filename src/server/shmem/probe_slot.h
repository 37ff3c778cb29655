/* probe_slot.h: a request of outbox.probe() to a worker, and the worker's findings. */
#pragma once

#include "server/base/clock.h"

#include "delivery/delivery.h"

extern "C" {
#include "storage/latch.h"
}

#define OUTBOX_MAX_PROBES 64
#define OUTBOX_MAX_PROBE_STEPS 16
/* The longest name of a topic has 249 characters. */
#define OUTBOX_PROBE_TOPICS_SIZE 4096

typedef enum ProbeState {
  PROBE_FREE,
  PROBE_WANTED, /* no worker has taken it yet */
  PROBE_RUNNING,
  PROBE_NO_SINK, /* the worker found no such sink */
  PROBE_DONE
} ProbeState;

/* The session that takes a slot also frees it. */
typedef struct ProbeSlot {
  ProbeState state;
  uint64 number; /* of the request; tells a reused slot from the former request */
  Oid database, server;
  bool send;                             /* send a test event */
  char topics[OUTBOX_PROBE_TOPICS_SIZE]; /* of pending events, separated by commas */
  Moment until;                          /* the deadline */
  Latch *latch;                          /* of the session */
  int n_steps;
  ob_probe_step steps[OUTBOX_MAX_PROBE_STEPS];
} ProbeSlot;
