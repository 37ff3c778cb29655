/*
 * shards.pml: one shard that changes hands between two workers while its events are in flight. Two workers never have
 * an event of it in flight at once, and when nothing can happen by itself any more, all events are recorded.
 *
 * It stands for shards_follow(), Shards::exchange() and SinkShards (worker), spread_shards() and start_missing()
 * (launcher), worker_slot_take(), worker_slot_resign() and give_up_slot() (slot), and outcomes that are recorded by
 * record_ended(). The shard has number 1: with one worker it is worker 0's, with two it is worker 1's.
 * A step is what no other process can see half of: what is done under the lock, or what only its worker sees.
 *
 * With TRACE it replays what real workers logged (trace.py): only the trace may happen, and the assertion at its end fails
 * when the model has that execution.
 *
 * Each guard can be taken out: NO_DRAINING (a shard is given away with its events in flight), NO_LOOK_AT_DRAINING (the
 * new owner does not ask who drains), SLOT_BEFORE_THREADS (a worker that leaves frees its slot while its requests are
 * still on the wire), TAKE_WITHOUT_LOOK (an owner takes the shard although another worker has it).
 */
#ifndef EVENTS
#define EVENTS 2
#endif
#ifndef CHANGES
#define CHANGES 2 /* of outbox.workers */
#endif
#ifdef TRACE
#include "trace.pml"
byte shard;
#define SHARD shard
#define MOST_IN_FLIGHT 255
#else
#define WORKERS 2
#define SHARD 1
#define MOST_IN_FLIGHT 1
#endif

mtype = { DRAINING, OURS, NOT_OURS }; /* FRESH is OURS: what it reads first does not matter here */

byte pending = EVENTS, recorded;

/* WorkerSlot, in shared memory: a bit for each worker */
byte present, slot_has, slot_drains, shards_changed;
#ifdef TRACE
byte workers; /* DatabaseSlot.workers; 0 = the launcher has not set it yet */
#else
byte workers = 1;
#endif
bool child[WORKERS]; /* the launcher's */

/* A worker's own */
bool mine[WORKERS];
mtype of_sink[WORKERS] = NOT_OURS;
byte in_flight[WORKERS], in_flight_anywhere;

#define BIT(w) (1 << (w))
#define HAS(set, w) (((set) & BIT(w)) != 0)
#define OTHERS(set, w) (((set) & ~BIT(w)) != 0)
#define PUT(set, w, yes) set = ((set) & ~BIT(w)) | ((yes) -> BIT(w) : 0)
#define OWNER (workers > 0 -> SHARD % workers : WORKERS)

inline tell_all() { /* shared_shards_changed() */
  shards_changed = shards_changed | present
}

/* What shards_follow() does under the lock. */
inline exchange(me) {
  drained = of_sink[me] == DRAINING && in_flight[me] == 0;
  of_sink[me] = (drained -> NOT_OURS : of_sink[me]);
  given = false;
  if
  :: look && mine[me] && OWNER != me && HAS(present, OWNER) -> /* give_away() */
    given = true;
    mine[me] = false;
#ifdef NO_DRAINING
    of_sink[me] = NOT_OURS
#else
    of_sink[me] = (of_sink[me] == OURS && in_flight[me] > 0 -> DRAINING : (of_sink[me] == OURS -> NOT_OURS : of_sink[me]))
#endif
#ifdef TAKE_WITHOUT_LOOK
  :: look && !mine[me] && OWNER == me -> mine[me] = true
#else
  :: look && !mine[me] && OWNER == me && !OTHERS(slot_has, me) -> mine[me] = true
#endif
  :: else
  fi;
  PUT(slot_has, me, mine[me]); /* publish() */
  PUT(slot_drains, me, of_sink[me] == DRAINING);
  if
#ifdef NO_LOOK_AT_DRAINING
  :: look && mine[me] && of_sink[me] == NOT_OURS -> of_sink[me] = OURS
#else
  :: look && mine[me] && of_sink[me] == NOT_OURS && !OTHERS(slot_drains, me) -> of_sink[me] = OURS
#endif
  :: else
  fi;
  if
  :: drained || given -> tell_all()
  :: else
  fi
}

inline follow(me) {
  atomic {
    look = HAS(shards_changed, me);
    PUT(shards_changed, me, false);
    exchange(me)
  }
}

inline free_slot(me) { /* give_up_slot() */
  PUT(present, me, false);
  PUT(slot_has, me, false);
  PUT(slot_drains, me, false);
  tell_all()
}

inline take_slot(me) { /* worker_slot_take() */
  PUT(present, me, true);
  mine[me] = false;
  of_sink[me] = NOT_OURS;
  tell_all()
}

#define MAY_CLAIM(w) (of_sink[w] == OURS && in_flight[w] < MOST_IN_FLIGHT)
inline claim(me) { /* one that another worker has in flight is not yet deleted: it is claimed again */
  in_flight[me]++;
  in_flight_anywhere++;
  assert(in_flight[me] == in_flight_anywhere)
}

inline recorded_one(me) { /* sent, and record_ended() */
  in_flight[me]--;
  in_flight_anywhere--
}

/* superfluous(): worker_slot_resign() */
#define MAY_RESIGN(w) (w >= workers && !mine[w] && in_flight[w] == 0)

#ifndef TRACE

proctype worker(byte me) {
  bool drained, look, given, leaves;

  atomic { take_slot(me) }
end:
  do
  :: HAS(shards_changed, me) || (of_sink[me] == DRAINING && in_flight[me] == 0) -> follow(me)
  :: atomic { MAY_CLAIM(me) && pending > 0 -> claim(me) }
  :: atomic { in_flight[me] > 0 -> recorded_one(me); pending--; recorded++ }
  :: atomic { MAY_RESIGN(me) && !HAS(shards_changed, me) && HAS(present, me) -> leaves = true }
    break
#ifdef SLOT_BEFORE_THREADS
  :: workers == 1 && me == 1 && in_flight[me] > 0 && !leaves -> atomic { leaves = true; free_slot(me) }
#endif
  od;
  atomic { if :: HAS(present, me) -> free_slot(me) :: else fi; child[me] = false }
}

proctype launcher() {
  byte n;

  atomic { child[0] = true; run worker(0) }
  do
  :: n < CHANGES ->
    atomic { workers = 3 - workers; n++; tell_all() }
    atomic {
      if
      :: workers == 2 && !child[1] -> child[1] = true; run worker(1)
      :: else
      fi
    }
  :: else -> break
  od;
end:
  atomic { /* one that left while it was wanted again is started by the next round */
    workers == 2 && !child[1] -> child[1] = true; run worker(1)
  }
}

init {
  run launcher();
end:
  atomic {
    timeout;
    assert(recorded == EVENTS)
  }
}
#else
#include "shards_trace.pml"
#endif
