/*
 * dead_letters.cpp: a bitmap of a million bits, by hash of the key, answers first. At 500,000 dead letters its
 * false-positive rate is about 40 %; a false positive costs one index lookup.
 */
#include "server/inflight/dead_letters.h"

#include "server/event/event_row.h"
#include "server/inflight/blocking.h"
#include "server/inflight/in_flight.h"
#include "server/sinks/shard_handoff.h"
#include "server/sinks/own_rows.h"
#include "server/sinks/worker_sinks.h"
#include "server/storage/sql.h"

extern "C" {
#include "catalog/pg_type.h"
#include "utils/builtins.h"
}

#define OF_KEY "sink = $1 AND pg_catalog.hashtextextended(partition_key, 0) = $2"
#define FAILED_ROWS "SELECT " EVENT_ROW_COLUMNS " FROM outbox.events_failed"

static Statement read_all = make_statement<>(FAILED_ROWS);
static Statement read_positions = make_statement<INT8ARRAYOID>(FAILED_ROWS " WHERE position = ANY ($1)");
static Statement read_redriven = make_statement<>(
    PENDING_ROWS "(last_attempt_at IS NOT NULL OR redrive_late IS NOT NULL) AND redrive_late IS NOT NULL");
static Statement read_of_key = make_statement<TEXTOID, INT8OID>(FAILED_ROWS " WHERE " OF_KEY " ORDER BY position");
static Statement read_redriven_of_key =
    make_statement<TEXTOID, INT8OID>(PENDING_ROWS "(last_attempt_at IS NOT NULL OR redrive_late IS NOT NULL) AND "
                                                  "redrive_late IS NOT NULL AND blocked_by IS NULL AND "
                                                  "available_at IS NULL AND " OF_KEY " ORDER BY position");

static bool stale = false;

static DeadLetter note_dead_letter(const EventRow *row) {
  WorkerSink *sink;

  dispatcher().dead_letter_keys.note(row->key_hash);
  if (!row_is_ours(row, &sink))
    return shard_is_mine(sink, dispatch::shard_of(row->key_hash, row->position)) ? DEAD : DEAD_ELSEWHERE;
  if (!sink->common.dead_letters_block || row->key_hash == 0)
    return DEAD;
  key_block(sink->oid, row->key_hash, row->position);
  return DEAD_BLOCKS;
}

static bool visit_dead(TupleTableSlot *slot, void *) {
  EventRow row;

  event_row_read(slot, &row);
  note_dead_letter(&row);
  return true;
}

static bool visit_redriven(TupleTableSlot *slot, void *) {
  WorkerSink *sink;
  EventRow row;

  event_row_read(slot, &row);
  dispatcher().dead_letter_keys.note(row.key_hash);
  if (row_is_ours(&row, &sink) && sink->common.ordered)
    require_memory(dispatcher().redriven_row(sink->oid, row.key_hash, row.position, row.blocked_by));
  return true;
}

void dead_letters_read(void) {
  Assert(in_spi());
  stale = false;
  statement_read(&read_all, NULL, InvalidSnapshot, visit_dead, NULL);
  statement_read(&read_redriven, NULL, InvalidSnapshot, visit_redriven, NULL);
}

void dead_letters_stale(void) {
  stale = true;
}

void dead_letters_refresh(void) {
  if (stale)
    dead_letters_read();
}

static bool visit_first(TupleTableSlot *slot, void *context) {
  WorkerSink *sink;
  EventRow row;

  event_row_read(slot, &row);
  if (!row_is_ours(&row, &sink))
    return true;
  *(int64 *)context = row.position;
  return false;
}

/* Later events of a key may be sent behind one that is in flight: its failure would return them. */
static bool visit_first_not_in_flight(TupleTableSlot *slot, void *context) {
  EventRow row;

  event_row_read(slot, &row);
  return in_flight().find(row.position) != NULL || visit_first(slot, context);
}

dispatch::DrainStops dead_letter_stops(const WorkerSink *sink, uint64 key_hash, Snapshot snapshot) {
  Assert(in_spi());
  dispatch::DrainStops stops;
  Datum values[] = {PointerGetDatum(cstring_to_text(sink->name)), Int64GetDatum((int64)key_hash)};

  statement_read(&read_of_key, values, snapshot, visit_first, &stops.dead);
  statement_read(&read_redriven_of_key, values, snapshot, visit_first_not_in_flight, &stops.redriven);
  /* Rejected events that are not recorded as dead letters yet, because their rows are locked. */
  for (InFlightEvent *event = in_flight().first_ended(); event; event = event->next)
    if (event->outcome == Outcome::REJECTED && event->sink == &sink->events && event->key_hash == key_hash)
      stops.dead = Min(stops.dead, event->position);
  return stops;
}

typedef struct DeadLetterQuery {
  const int64 *positions;
  DeadLetter *states;
  int n;
} DeadLetterQuery;

static bool visit_position(TupleTableSlot *slot, void *context) {
  DeadLetterQuery *query = (DeadLetterQuery *)context;
  WorkerSink *sink;
  EventRow row;

  event_row_read(slot, &row);
  sink = row.sink ? worker_sink_find(row.sink, row.sink_length) : NULL;
  blocked_keys().row_seen(sink ? sink->oid : InvalidOid, row.key_hash, row.position);
  DeadLetter state = note_dead_letter(&row);
  for (int i = 0; i < query->n; i++)
    if (query->positions[i] == row.position)
      query->states[i] = state;
  return true;
}

void dead_letters_find(const int64 *positions, DeadLetter *states, int n, Snapshot snapshot) {
  Assert(in_spi());
  DeadLetterQuery query = {positions, states, n};

  for (int i = 0; i < n; i++)
    states[i] = NOT_DEAD;
  if (n == 0)
    return;
  Datum values[] = {int8_array(positions, n)};
  statement_read(&read_positions, values, snapshot, visit_position, &query);
}
