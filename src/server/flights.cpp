#include "flights.h"

#include "settings.h"
#include "standby.h"
#include "worker_sinks.h"

extern "C" {
#include "access/xlog.h"
#include "utils/hsearch.h"
#include "utils/memutils.h"
}

#define CHUNK 1024
#define UNFLUSHED_MAX 256

/* Recorded, but lost by a crash until `lsn` is flushed. */
typedef struct Unflushed {
  XLogRecPtr lsn;
  int n;
} Unflushed;

typedef struct PositionEntry {
  int64 position; /* the hash key: first */
  Flight *flight;
} PositionEntry;

static MemoryContext context = NULL;
static Flight **chunks = NULL;
static int n_chunks = 0;
static Flight *first_free = NULL;
static Flight *first_ended = NULL, *last_ended = NULL;
static int n_ended = 0;
static int in_use = 0;
static int64 bytes_in_use = 0;
static HTAB *by_position = NULL;
static Unflushed unflushed[UNFLUSHED_MAX];
static int n_unflushed = 0;
static int events_unflushed = 0;

void flights_init(void) {
  HASHCTL control;

  context = AllocSetContextCreate(TopMemoryContext, "outbox flights", ALLOCSET_DEFAULT_SIZES);
  control.keysize = sizeof(int64);
  control.entrysize = sizeof(PositionEntry);
  control.hcxt = context;
  by_position = hash_create("outbox flights by position", 16384, &control, HASH_ELEM | HASH_BLOBS | HASH_CONTEXT);
}

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

static void add_chunk(void) {
  MemoryContext previous = MemoryContextSwitchTo(context);
  Flight *chunk = (Flight *)palloc0(sizeof(Flight) * CHUNK);

  chunks =
      chunks ? (Flight **)repalloc(chunks, sizeof(Flight *) * (n_chunks + 1)) : (Flight **)palloc(sizeof(Flight *));
  chunks[n_chunks] = chunk;
  for (int i = CHUNK - 1; i >= 0; i--) {
    chunk[i].index = n_chunks * CHUNK + i;
    chunk[i].next = first_free;
    first_free = &chunk[i];
  }
  n_chunks++;
  MemoryContextSwitchTo(previous);
}

Flight *flight_new(WorkerSink *sink, int lane, int64 position, uint32 bytes) {
  bool found;

  if (first_free == NULL)
    add_chunk();
  PositionEntry *entry = (PositionEntry *)hash_search(by_position, &position, HASH_ENTER, &found);
  Assert(!found);
  Flight *flight = first_free;
  first_free = flight->next;
  entry->flight = flight;
  flight->generation++;
  flight->position = position;
  flight->bytes = bytes;
  flight->sink = sink;
  flight->lane = lane;
  sink->lanes.flights[lane]++;
  flight->state = FLIGHT_CLAIMED;
  flight->error = NULL;
  flight->record_after = 0;
  flight->recorded = false;
  flight->given_to = InvalidOid;
  flight->gone = false;
  flight->record_failures = 0;
  flight->suspect = false;
  flight->next = NULL;
  in_use++;
  bytes_in_use += bytes;
  return flight;
}

void flight_free(Flight *flight) {
  hash_search(by_position, &flight->position, HASH_REMOVE, NULL);
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
  PositionEntry *entry = (PositionEntry *)hash_search(by_position, &position, HASH_FIND, NULL);

  return entry ? entry->flight : NULL;
}

void flights_each(void (*visit)(const Flight *flight)) {
  HASH_SEQ_STATUS walk;
  PositionEntry *entry;

  hash_seq_init(&walk, by_position);
  while ((entry = (PositionEntry *)hash_seq_search(&walk)) != NULL)
    visit(entry->flight);
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

TimestampTz flights_next_recording(void) {
  TimestampTz next = DT_NOEND;

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
