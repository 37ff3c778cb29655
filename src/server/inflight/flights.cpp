#include "server/inflight/flights.h"

#include "server/base/settings.h"
#include "server/sinks/worker_sinks.h"
#include "server/storage/standby.h"

extern "C" {
#include "access/xlog.h"
#include "utils/memutils.h"
}

#define CHUNK 1024
#define UNFLUSHED_MAX 256

/* Recorded, but lost by a crash until `lsn` is flushed. */
typedef struct Unflushed {
  XLogRecPtr lsn;
  int n;
} Unflushed;

static_assert(sizeof(Flight) == 128 && OUTBOX_LANES <= 256);

static MemoryContext context = NULL;
static Flight **chunks = NULL;
static int n_chunks = 0;
static Flight *first_free = NULL;
static Flight *first_ended = NULL, *last_ended = NULL;
static int n_ended = 0;
static int in_use = 0;
static int64 bytes_in_use = 0;
static Flight **by_position = NULL; /* slots, each a chain */
static uint32 n_slots = 0;          /* a power of two, at least as many as there are flights */
static Unflushed unflushed[UNFLUSHED_MAX];
static int n_unflushed = 0;
static int events_unflushed = 0;

/* Lets go of recordings that have reached the disk, and the synchronous standbys. When they fill half of the bound,
 * one flush frees them all. */
static void settle_unflushed(void) {
  if (n_unflushed == 0)
    return;
  if (events_unflushed > setting_max_in_flight / 2 || n_unflushed == UNFLUSHED_MAX)
    XLogFlush(unflushed[n_unflushed - 1].lsn);
  XLogRecPtr safe = standby_safe();
  int done = 0;
  while (done < n_unflushed && unflushed[done].lsn <= safe)
    events_unflushed -= unflushed[done++].n;
  n_unflushed -= done;
  memmove(unflushed, unflushed + done, sizeof(Unflushed) * n_unflushed);
}

void flights_recorded(int n, XLogRecPtr lsn) {
  if (n_unflushed == UNFLUSHED_MAX)
    settle_unflushed();
  if (n_unflushed == UNFLUSHED_MAX) { /* a standby lags: they become safe together */
    unflushed[n_unflushed - 1].lsn = lsn;
    unflushed[n_unflushed - 1].n += n;
  } else {
    unflushed[n_unflushed++] = {lsn, n};
  }
  events_unflushed += n;
}

int64 flights_free_bytes(void) {
  return (int64)setting_max_in_flight_memory * 1024 - bytes_in_use;
}

int flights_free(void) {
  settle_unflushed();
  /* One event always fits, however large. */
  if (in_use > 0 && flights_free_bytes() <= 0)
    return 0;
  return Max(0, setting_max_in_flight - in_use - events_unflushed);
}

int flights_in_use(void) {
  return in_use;
}

/* Positions come in sequence: neighbours share a cache line, and blocks of them are spread. */
static Flight **slot_of(int64 position) {
  uint64 block = ((uint64)position >> 4) * UINT64CONST(0x9E3779B97F4A7C15) >> 32;

  return &by_position[((block << 4) | ((uint64)position & 15)) & (n_slots - 1)];
}

static void enter_slot(Flight *flight) {
  Flight **slot = slot_of(flight->position);

  flight->next_in_slot = *slot;
  *slot = flight;
}

static void leave_slot(const Flight *flight) {
  Flight **place = slot_of(flight->position);

  while (*place != flight)
    place = &(*place)->next_in_slot;
  *place = flight->next_in_slot;
}

static void grow_table(void) {
  uint32 n = Max(4 * CHUNK, n_slots * 2);
  Flight **slots = (Flight **)MemoryContextAllocZero(context, sizeof(Flight *) * n);

  if (by_position)
    pfree(by_position);
  by_position = slots;
  n_slots = n;
  for (int i = 0; i < n_chunks * CHUNK; i++) {
    Flight *flight = &chunks[i / CHUNK][i % CHUNK];
    if (flight->state != FLIGHT_FREE)
      enter_slot(flight);
  }
}

void flights_init(void) {
  context = AllocSetContextCreate(TopMemoryContext, "outbox flights", ALLOCSET_DEFAULT_SIZES);
  grow_table();
}

static void add_chunk(void) {
  char *memory = (char *)MemoryContextAllocZero(context, sizeof(Flight) * (CHUNK + 1));
  Flight *chunk = (Flight *)TYPEALIGN(sizeof(Flight), memory);

  chunks = chunks ? (Flight **)repalloc(chunks, sizeof(Flight *) * (n_chunks + 1))
                  : (Flight **)MemoryContextAlloc(context, sizeof(Flight *));
  chunks[n_chunks] = chunk;
  for (int i = CHUNK - 1; i >= 0; i--) {
    chunk[i].index = n_chunks * CHUNK + i;
    chunk[i].next = first_free;
    first_free = &chunk[i];
  }
  n_chunks++;
  if ((uint32)n_chunks * CHUNK > n_slots)
    grow_table();
}

Flight *flight_new(WorkerSink *sink, int lane, int64 position, uint32 bytes) {
  if (first_free == NULL)
    add_chunk();
  Flight *flight = first_free;
  first_free = flight->next;
  __builtin_prefetch(first_free, 1); /* the next one: by then it is in the cache */
  flight->generation++;
  flight->position = position;
  enter_slot(flight);
  flight->bytes = bytes;
  flight->sink = sink;
  flight->lane = lane;
  sink->lanes.flights[lane]++;
  flight->state = FLIGHT_CLAIMED;
  flight->error = NULL;
  flight->record_after = MOMENT_NONE;
  flight->recorded = false;
  flight->given_to = InvalidOid;
  flight->gone = false;
  flight->record_failures = 0;
  flight->suspect = flight->resumed = flight->slow_retry = false;
  flight->next = NULL;
  in_use++;
  bytes_in_use += bytes;
  return flight;
}

void flight_free(Flight *flight) {
  leave_slot(flight);
  in_use--;
  bytes_in_use -= flight->bytes;
  flight->sink->lanes.flights[flight->lane]--;
  if (flight->error)
    pfree(flight->error);
  flight->error = NULL;
  flight->state = FLIGHT_FREE;
  flight->next = first_free;
  first_free = flight;
}

Flight *flight_find(int64 position) {
  Flight *flight = *slot_of(position);

  while (flight && flight->position != position)
    flight = flight->next_in_slot;
  return flight;
}

void flights_each(void (*visit)(const Flight *flight)) {
  for (int i = 0; i < n_chunks * CHUNK; i++)
    if (chunks[i / CHUNK][i % CHUNK].state != FLIGHT_FREE)
      visit(&chunks[i / CHUNK][i % CHUNK]);
}

uint64 flight_ticket(const Flight *flight) {
  return ((uint64)flight->generation << 32) | flight->index;
}

Flight *flight_of_ticket(uint64 ticket) {
  uint32 index = (uint32)ticket;

  if (index >= (uint32)n_chunks * CHUNK)
    return NULL;
  Flight *flight = &chunks[index / CHUNK][index % CHUNK];
  return flight->generation == (uint32)(ticket >> 32) && flight->state == FLIGHT_IN_AIR ? flight : NULL;
}

static void append_ended(Flight *flight) {
  flight->next = NULL;
  if (last_ended)
    last_ended->next = flight;
  else
    first_ended = flight;
  last_ended = flight;
  n_ended++;
}

void flight_end(Flight *flight, ob_outcome outcome, int64 retry_after_ms, const char *error) {
  flight->state = FLIGHT_ENDED;
  flight->outcome = outcome;
  flight->retry_after_ms = retry_after_ms;
  flight->error = error ? MemoryContextStrdup(context, error) : NULL;
  append_ended(flight);
}

void flights_acquit(struct WorkerSink *sink, void (*give_back)(Flight *)) {
  Flight *flight = first_ended, *next;

  first_ended = last_ended = NULL;
  n_ended = 0;
  for (; flight; flight = next) {
    next = flight->next;
    if (flight->suspect && flight->sink == sink)
      give_back(flight);
    else
      append_ended(flight);
  }
}

Flight *flights_first_ended(void) {
  return first_ended;
}

int flights_ended(void) {
  return n_ended;
}

Moment flights_next_recording(void) {
  Moment next = MOMENT_NEVER;

  for (Flight *flight = first_ended; flight; flight = flight->next)
    next = Min(next, flight->record_after);
  return next;
}

int flights_settle_ended(bool committed) {
  Flight *flight = first_ended, *next;
  int freed = 0;

  if (!committed) {
    for (; flight; flight = flight->next)
      flight->recorded = flight->gone = false;
    return 0;
  }
  first_ended = last_ended = NULL;
  n_ended = 0;
  for (; flight; flight = next) {
    next = flight->next;
    if (flight->recorded) {
      flight_free(flight);
      freed++;
      continue;
    }
    append_ended(flight);
  }
  return freed;
}
