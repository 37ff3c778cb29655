#include "claim.h"

#include "claim_round.h"
#include "dead_letters.h"
#include "late.h"

extern "C" {
#include "utils/memutils.h"
#include "utils/snapmgr.h"
}

static Statement read_failing = {
    PENDING_ROWS "available_at IS NOT NULL AND held_by IS NULL AND attempts > 0", 0, {}, NULL};
static Statement read_groups = {"SELECT DISTINCT ON (held_by) " EVENT_ROW_COLUMNS
                                " FROM outbox.events_pending WHERE held_by IS NOT NULL ORDER BY held_by, position",
                                0,
                                {},
                                NULL};

/* The batches are filled anew, in memory of their own: it outlives the round when a standby is waited for. */
static void begin_round(TimestampTz now) {
  static MemoryContext batches = NULL;
  int n;
  WorkerSink **sinks = worker_sinks_all(&n);

  if (batches == NULL)
    batches = AllocSetContextCreate(TopMemoryContext, "outbox batches", ALLOCSET_DEFAULT_SIZES);
  MemoryContextReset(batches);
  memset((void *)&claim_round, 0, sizeof(claim_round));
  claim_round.context = batches;
  claim_round.now = now;
  claim_round.free_flights = flights_free();
  claim_round.free_bytes = Min(flights_free_bytes(), (int64)ROUND_BYTES);
  for (int i = 0; i < n; i++) {
    sinks[i]->batch = NULL;
    sinks[i]->batch_flights = NULL;
    sinks[i]->n_batch = sinks[i]->max_batch = 0;
  }
}

bool claim_events(TimestampTz now, bool *look_for_recalled) {
  int n;
  WorkerSink **sinks = worker_sinks_all(&n);
  bool more = false;

  begin_round(now);
  SPI_connect();
  dead_letters_refresh();
  /* One snapshot for all reads of the round: the late ones and the cursor's must meet without a gap. */
  Snapshot snapshot = RegisterSnapshot(GetLatestSnapshot());
  late_find(snapshot);
  for (int i = 0; i < n; i++) {
    sinks[i]->cursor_before = sinks[i]->cursor;
    if (sinks[i]->room <= 0)
      continue;
    stream_late(sinks[i], snapshot);
    more |= sinks[i]->n_late > 0 && sinks[i]->room > 0; /* a long one: the cursor waits for it */
    stream_draining(sinks[i], snapshot);
    more |= stream_due(sinks[i], snapshot);
  }
  busy_rows_claim(snapshot);
  if (*look_for_recalled) {
    recalled_check_heads(snapshot);
    *look_for_recalled = recalled_claim(snapshot);
  }
  more |= stream_main(snapshot);
  for (int i = 0; i < n; i++) /* what the cursor has passed may drain now */
    more |= sinks[i]->room > 0 && sinks[i]->cursor > sinks[i]->cursor_before && held_keys_any_draining();
  more |= claim_round.free_bytes <= 0 && flights_free() > 0; /* a round is full sooner than the sinks */
  if (claim_round.n_taken + claim_round.n_marks > 0)
    claim_lock_and_mark();
  UnregisterSnapshot(snapshot);
  SPI_finish();
  return more;
}

void claim_return(Flight *flight) {
  WorkerSink *sink = flight->sink;
  HeldKey *key = held_key_find(sink->oid, flight->key_hash);
  int64 position = flight->position;

  if (key && key->head == 0)
    key->drained = Min(key->drained, position - 1);
  worker_sink_event_returned(sink, flight->bytes);
  flight_free(flight);
  worker_sink_rewind(sink, position);
}

void claim_give_back(void) {
  int n;
  WorkerSink **sinks = worker_sinks_all(&n);

  for (int i = 0; i < n; i++) {
    for (int j = 0; j < sinks[i]->n_batch; j++)
      if (sinks[i]->batch_flights[j])
        claim_return(sinks[i]->batch_flights[j]);
    sinks[i]->n_batch = 0;
    worker_sink_restart(sinks[i]);
  }
  held_keys_restart();
}

/* ---- the beginning ----------------------------------------------------------------------------------------- */

static bool visit_failing(TupleTableSlot *slot, void *) {
  WorkerSink *sink;
  EventRow row;

  event_row_read(slot, &row);
  if (judge_is_ours(&row, &sink) && sink->ordered)
    held_key_hold(sink->oid, row.key_hash, row.position);
  return true;
}

static bool visit_group(TupleTableSlot *slot, void *) {
  WorkerSink *sink;
  EventRow row;

  event_row_read(slot, &row);
  if (judge_is_ours(&row, &sink) && sink->ordered)
    held_key_drain(sink->oid, row.key_hash, row.held_by);
  return true;
}

void claim_init(int64 origin) {
  judge_init(origin);
  SPI_connect();
  statement_read(&read_failing, NULL, InvalidSnapshot, visit_failing, NULL);
  statement_read(&read_groups, NULL, InvalidSnapshot, visit_group, NULL);
  dead_letters_read();
  SPI_finish();
}
