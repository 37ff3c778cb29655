/*
 * position.cpp: a position is drawn after the transaction has its ID, so that a worker can find late commits by
 * transaction ID. Only the owner of the table may insert a position: for another role with INSERT it would bypass the
 * check of a sink's USAGE.
 */
#include "server/enqueue/position.h"

extern "C" {
#include "access/xact.h"
#include "catalog/pg_class.h"
#include "catalog/pg_type.h"
#include "commands/sequence.h"
#include "storage/lmgr.h"
#include "utils/builtins.h"
}

#include "server/base/position_step.h"
#include "server/shmem/shared_state.h"
#include "server/storage/owner_sql.h"

/* Positions above are refused, whoever gives or draws them. Half of the range is left, so that no sum of a position
 * and a margin overflows. At a million events a second this one is drawn after fourteen years. */
static const int64 LAST_POSITION = PG_INT64_MAX / 2;

/* Positions of this sequence up to this one have been drawn, or belong to one that was. */
static Oid known_sequence;
static int64 known_drawn;

static void note_drawn(Oid sequence, int64 drawn) {
  if (known_sequence != sequence || drawn > known_drawn)
    known_drawn = drawn;
  known_sequence = sequence;
}

static int64 last_drawn(Oid sequence) {
  LOCAL_FCINFO(fcinfo, 1);

  /* The result is NULL before the first draw, which DirectFunctionCall() does not allow. */
  InitFunctionCallInfoData(*fcinfo, NULL, 1, InvalidOid, NULL, NULL);
  fcinfo->args[0].value = ObjectIdGetDatum(sequence);
  fcinfo->args[0].isnull = false;
  Datum last = pg_sequence_last_value(fcinfo);
  return fcinfo->isnull ? 0 : position_last_of(Min(DatumGetInt64(last), LAST_POSITION));
}

/* As the owner: PostgreSQL 15 to 17 refuse to tell it to a role without a right on the sequence. */
static bool was_set_back(Oid sequence, int64 drawn) {
  OwnerScope scope = owner_enter();
  const int64 last = last_drawn(sequence);
  owner_leave(scope);
  return last < drawn;
}

/* A lock serializes restores, but not nextval(): only a lock that every producer would have to take could make
 * reading the sequence and setval() one step. So setval() moves the sequence past the given position and 1,000,000
 * further ones: sessions cannot draw that many between the two calls, and a restore of millions of rows moves the
 * sequence only a few times. */
static const int64 HEADROOM = 1000000 * POSITION_STEP;

static void advance_sequence(Oid sequence, int64 of) {
  OwnerScope scope = owner_enter();

  LockDatabaseObject(RelationRelationId, sequence, 0, ExclusiveLock);
  int64 last = last_drawn(sequence);
  if (of > last) {
    DirectFunctionCall2(setval_oid, ObjectIdGetDatum(sequence), Int64GetDatum(of + HEADROOM));
    last = position_last_of(of + HEADROOM);
  }
  note_drawn(sequence, last);
  UnlockDatabaseObject(RelationRelationId, sequence, 0, ExclusiveLock);
  owner_leave(scope);
}

static void raise_highest(pg_atomic_uint64 *highest, int64 position) {
  uint64 known = pg_atomic_read_u64(highest);

  while ((int64)known < position && !pg_atomic_compare_exchange_u64(highest, &known, (uint64)position))
    ;
}

/* Without a slot for this database (no preload, or no commit since the server's start) each session has its own. */
static pg_atomic_uint64 *highest_drawn(Oid sequence) {
  static pg_atomic_uint64 own_highest;
  static Oid own_sequence;

  if (pg_atomic_uint64 *shared = shared_drawn(sequence))
    return shared;
  if (own_sequence != sequence)
    pg_atomic_write_u64(&own_highest, 0);
  own_sequence = sequence;
  return &own_highest;
}

/* A position that far ahead would be remembered, and all later ones would have to be above it. So it is neither used
 * nor remembered: when the sequence is set back, nothing has happened. */
static int64 draw(Oid sequence) {
  const int64 position = nextval_internal(sequence, false);

  if (position > LAST_POSITION)
    ereport(ERROR,
            (errcode(ERRCODE_NUMERIC_VALUE_OUT_OF_RANGE),
             errmsg("the sequence outbox.events_position is at " INT64_FORMAT ", beyond the last position", position),
             errdetail("Positions go up to " INT64_FORMAT ". Somebody has set the sequence ahead.", LAST_POSITION),
             errhint("The check \"positions\" of outbox.doctor() has the statement that sets it back.")));
  return position;
}

/* The sequence may have been set back while nothing knew its positions: so those in the table count. Normally none is
 * above a position that was just drawn, so dead rows below it are not read. */
static pg_atomic_uint64 *learn_highest(Oid sequence, int64 above) {
  static Statement read_highest = make_statement<INT8OID, INT8OID>(
      "SELECT pg_catalog.max(position) FROM (SELECT (SELECT pg_catalog.max(position) FROM outbox.events_pending "
      "WHERE position OPERATOR(pg_catalog.>) $1 AND position OPERATOR(pg_catalog.<=) $2) AS position UNION ALL "
      "SELECT (SELECT pg_catalog.max(position) FROM outbox.events_failed "
      "WHERE position OPERATOR(pg_catalog.>) $1 AND position OPERATOR(pg_catalog.<=) $2)) AS highest");
  Datum values[] = {Int64GetDatum(above), Int64GetDatum(LAST_POSITION)};
  pg_atomic_uint64 *highest = highest_drawn(sequence);

  if (pg_atomic_read_u64(highest) > 0)
    return highest;
  bool isnull = true;
  OwnerScope scope = owner_enter();
  owner_execute(&read_highest, values, NULL);
  const Datum position = SPI_getbinval(SPI_tuptable->vals[0], SPI_tuptable->tupdesc, 1, &isnull);
  if (!isnull)
    raise_highest(highest, position_last_of(DatumGetInt64(position)));
  owner_leave(scope);
  return highest;
}

void position_learn(void) {
  (void)learn_highest(outbox_sequence_oid(), 0);
}

/* Discards a position that is not above all drawn ones: another session was faster or had cached values, or the
 * sequence was set back (setval(), RESTART). A sequence that was set back is repaired; otherwise the worker would
 * skip the event, and events of its key would be out of order. */
int64 position_draw(void) {
  Assert(IsTransactionState());
  Oid sequence = outbox_sequence_oid();

  (void)GetTopTransactionId();
  int64 position = draw(sequence);
  pg_atomic_uint64 *highest = learn_highest(sequence, position);
  for (bool again = false; position <= (int64)pg_atomic_read_u64(highest); again = true) {
    int64 drawn = (int64)pg_atomic_read_u64(highest);
    if (again && was_set_back(sequence, drawn))
      advance_sequence(sequence, drawn);
    position = draw(sequence);
  }
  raise_highest(highest, position_last_of(position));
  note_drawn(sequence, position_last_of(position));
  return position;
}

void position_keep(int64 given) {
  Oid sequence = outbox_sequence_oid();

  if (known_sequence == sequence && given <= known_drawn)
    return;
  if (given < 1 || given > LAST_POSITION)
    ereport(ERROR,
            (errcode(ERRCODE_NUMERIC_VALUE_OUT_OF_RANGE), errmsg("position " INT64_FORMAT " is out of range", given),
             errdetail("Positions go from 1 to " INT64_FORMAT ".", LAST_POSITION),
             errhint("Leave the position out: the server draws it.")));
  advance_sequence(sequence, given);
}
