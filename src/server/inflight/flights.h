/*
 * flights.h: the events that this worker has claimed and not yet recorded. A ticket names a flight through the
 * delivery room and back; its generation keeps a late report from acknowledging another event.
 */
#pragma once

#include "server/base/clock.h"

extern "C" {
#include "access/xlogdefs.h"
#include "storage/itemptr.h"
}

struct WorkerSink;

typedef enum FlightState {
  FLIGHT_FREE,
  FLIGHT_CLAIMED, /* chosen in the running transaction, not submitted */
  FLIGHT_IN_AIR,  /* submitted */
  FLIGHT_ENDED    /* completed, to be recorded */
} FlightState;

/* Two cache lines, the first with what every step asks for: there are tens of thousands. */
typedef struct Flight {
  int64 position;
  uint64 key_hash;
  struct WorkerSink *sink;
  struct Flight *next;         /* free list, or list of ended ones */
  struct Flight *next_in_slot; /* of the table by position */
  ItemPointerData ctid;        /* where the row was when it was claimed */
  FlightState state : 8;
  ob_outcome outcome : 8; /* filled at the end of the flight */
  uint32 index;
  uint32 generation;
  uint32 bytes;
  int32 attempts; /* failed ones before this */

  TimestampTz due_since; /* enqueued, or the later time that was asked for */
  TimestampTz ended_at;
  Moment record_after;  /* somebody held the row: try to record again then */
  int64 held_by;        /* what the row said when it was claimed */
  int64 retry_after_ms; /* filled at the end of the flight */
  char *error;          /* likewise; in the flights' memory context, or NULL */
  TransactionId xmin;   /* who wrote the row that was claimed */
  Oid file;             /* likewise: of the table */
  Oid given_to;         /* this sink has the event still to come: its row was seen, and passed, meanwhile */
  uint32 lane : 8;
  uint32 record_failures : 18; /* it alone made the transaction fail */
  bool late : 1;               /* redriven by force, after later events of its key */
  bool resumed : 1;            /* claimed before its time, since what it waited for is over */
  bool recorded : 1;           /* in the running transaction */
  bool gone : 1;               /* its row was not there any more when this was to be recorded */
  bool slow_retry : 1;         /* it may not be tried again within seconds */
  bool suspect : 1; /* its failure may be the sink's: forgotten if the circuit opens before it is recorded */
} Flight;

void flights_init(void);

/* How many more may be claimed, by number and by memory. */
int flights_free(void);
int64 flights_free_bytes(void);
int flights_in_use(void);

/* A claimed flight for a position that has none; never NULL. Pointers stay valid until flight_free(). */
Flight *flight_new(struct WorkerSink *sink, int lane, int64 position, uint32 bytes);
void flight_free(Flight *flight);
Flight *flight_find(int64 position);
/* All that are claimed, in the air or not yet recorded, in no order. */
void flights_each(void (*visit)(const Flight *flight));
uint64 flight_ticket(const Flight *flight);
/* NULL for a ticket whose flight is over. */
Flight *flight_of_ticket(uint64 ticket);

/* Moves a flight to the ended ones, with its outcome. `error` is copied; may be NULL. */
void flight_end(Flight *flight, ob_outcome outcome, int64 retry_after_ms, const char *error);
Flight *flights_first_ended(void); /* then flight->next */
int flights_ended(void);
/* When the next of them may be recorded: in the past for most, later for rows that somebody holds. */
Moment flights_next_recording(void);
/* After the commit: frees those marked `recorded`. After an abort: takes the marks back. */
int flights_settle_ended(bool committed);

/* The sink was down: its suspects are taken off the list and handed to `give_back`. */
void flights_acquit(struct WorkerSink *sink, void (*give_back)(Flight *));

/* Recordings are committed asynchronously; until their WAL is safe a crash (or a failover to a synchronous standby)
 * would send them again, so they count against outbox.max_in_flight. */
void flights_recorded(int n, XLogRecPtr lsn);
