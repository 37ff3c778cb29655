/*
 * position.cpp: a position is drawn after the transaction has its id: a worker can then bound late commits by
 * transaction. Only the owner of the table may give a position: with the INSERT right alone it would bypass the
 * check of a sink's USAGE.
 */
#include "server/enqueue/position.h"

extern "C" {
#include "access/xact.h"
#include "catalog/pg_class.h"
#include "commands/sequence.h"
#include "storage/lmgr.h"
#include "utils/builtins.h"
}

#include "server/shmem/shared_state.h"
#include "server/storage/owner_sql.h"

/* Positions up to this one are known to be drawn, in this sequence. */
static Oid known_sequence;
static int64 known_drawn;

static void remember(Oid sequence, int64 drawn) {
  if (known_sequence != sequence || drawn > known_drawn)
    known_drawn = drawn;
  known_sequence = sequence;
}

static int64 last_drawn(Oid sequence) {
  LOCAL_FCINFO(fcinfo, 1);

  /* NULL while nothing was drawn, so not by DirectFunctionCall. */
  InitFunctionCallInfoData(*fcinfo, NULL, 1, InvalidOid, NULL, NULL);
  fcinfo->args[0].value = ObjectIdGetDatum(sequence);
  fcinfo->args[0].isnull = false;
  Datum last = pg_sequence_last_value(fcinfo);
  return fcinfo->isnull ? 0 : DatumGetInt64(last);
}

/* Restores take turns here; nextval does not. Nothing can make our look and our setval one step with it, short of a
 * lock that every producer would queue behind. So the sequence jumps far ahead of what is given: in the microseconds
 * between the two nobody draws that many positions, and a restore of millions moves the sequence a few times only. */
static const int64 HEADROOM = 1000000;

static void move_ahead(Oid sequence, int64 of) {
  OwnerScope scope = owner_enter();

  LockDatabaseObject(RelationRelationId, sequence, 0, ExclusiveLock);
  int64 last = last_drawn(sequence);
  if (of > last) {
    last = of + HEADROOM;
    DirectFunctionCall2(setval_oid, ObjectIdGetDatum(sequence), Int64GetDatum(last));
  }
  remember(sequence, last);
  UnlockDatabaseObject(RelationRelationId, sequence, 0, ExclusiveLock);
  owner_leave(scope);
}

static void raise(pg_atomic_uint64 *highest, int64 position) {
  uint64 known = pg_atomic_read_u64(highest);

  while ((int64)known < position && !pg_atomic_compare_exchange_u64(highest, &known, (uint64)position))
    ;
}

/* A position at or below one that was drawn before is thrown away: another session was quicker, or it had cached
 * values, or somebody set the sequence back (setval, RESTART). The last is repaired, else the worker would pass the
 * event by, and events of its key would change places. */
int64 position_draw(void) {
  Oid sequence = outbox_sequence_oid();

  (void)GetTopTransactionId();
  int64 position = nextval_internal(sequence, false);
  if (pg_atomic_uint64 *highest = shared_drawn(sequence)) {
    for (bool again = false; position <= (int64)pg_atomic_read_u64(highest); again = true) {
      int64 drawn = (int64)pg_atomic_read_u64(highest);
      if (again && last_drawn(sequence) < drawn)
        move_ahead(sequence, drawn);
      position = nextval_internal(sequence, false);
    }
    raise(highest, position);
  }
  remember(sequence, position);
  return position;
}

void position_seen(int64 position) {
  if (pg_atomic_uint64 *highest = shared_drawn(outbox_sequence_oid()))
    raise(highest, position);
}

bool position_known(void) {
  const pg_atomic_uint64 *highest = shared_drawn(outbox_sequence_oid());

  return highest && pg_atomic_read_u64(const_cast<pg_atomic_uint64 *>(highest)) > 0;
}

void position_keep(int64 given) {
  Oid sequence = outbox_sequence_oid();

  if (known_sequence == sequence && given <= known_drawn)
    return;
  if (given < 1 || given > PG_INT64_MAX / 2)
    ereport(ERROR,
            (errcode(ERRCODE_NUMERIC_VALUE_OUT_OF_RANGE), errmsg("position " INT64_FORMAT " is out of range", given),
             errdetail("Positions go from 1 to " INT64_FORMAT ".", PG_INT64_MAX / 2),
             errhint("Leave the position out: the server draws it.")));
  move_ahead(sequence, given);
}
