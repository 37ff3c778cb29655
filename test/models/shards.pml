/*
 * shards.pml: one shard that changes hands between two workers while its events are in flight. Two workers never have
 * an event of it in flight at once, and when nothing can happen by itself any more, all events are recorded.
 *
 * It stands for shards_follow(), Shards::exchange() and SinkShards (worker), spread_shards() and start_missing()
 * (launcher), worker_slot_take(), worker_slot_resign() and give_up_slot() (slot), and outcomes that are recorded by
 * record_ended(). The shard has number 1: with one worker it is worker 0's, with two it is worker 1's.
 * A step is what no other process can see half of: what is done under the lock, or what only its worker sees.
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

mtype = { NOT_OURS, OURS, DRAINING }; /* FRESH is OURS: what it reads first does not matter here */

byte pending = EVENTS, recorded;

/* WorkerSlot, in shared memory */
bool present[2], slot_has[2], slot_drains[2], shards_changed[2];
byte workers = 1; /* DatabaseSlot.workers */
bool child[2];    /* the launcher's */

/* A worker's own */
bool mine[2];
mtype of_sink[2] = NOT_OURS;
byte in_flight[2];

#define OWNER (1 % workers)

inline tell_all() { /* shared_shards_changed() */
  shards_changed[0] = shards_changed[0] || present[0];
  shards_changed[1] = shards_changed[1] || present[1]
}

/* shards_follow(), all of it under the lock. */
inline follow(me) {
  atomic {
    drained = of_sink[me] == DRAINING && in_flight[me] == 0;
    of_sink[me] = (drained -> NOT_OURS : of_sink[me]);
    look = shards_changed[me];
    given = false;
    if
    :: look || drained ->
      shards_changed[me] = shards_changed[me] && !look;
      if
      :: look && mine[me] && OWNER != me && present[OWNER] -> /* give_away() */
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
      :: look && !mine[me] && OWNER == me && !slot_has[1 - me] -> mine[me] = true
#endif
      :: else
      fi;
      slot_has[me] = mine[me]; /* publish() */
      slot_drains[me] = of_sink[me] == DRAINING;
      if
#ifdef NO_LOOK_AT_DRAINING
      :: look && mine[me] && of_sink[me] == NOT_OURS -> of_sink[me] = OURS
#else
      :: look && mine[me] && of_sink[me] == NOT_OURS && !(present[1 - me] && slot_drains[1 - me]) -> of_sink[me] = OURS
#endif
      :: else
      fi;
      if
      :: drained || given -> tell_all()
      :: else
      fi
    :: else
    fi
  }
}

inline free_slot(me) { /* give_up_slot() */
  atomic { present[me] = false; slot_has[me] = false; slot_drains[me] = false; tell_all() }
}

proctype worker(byte me) {
  bool drained, look, given, leaves;

  atomic { /* worker_slot_take() */
    present[me] = true; slot_has[me] = false; slot_drains[me] = false;
    mine[me] = false; of_sink[me] = NOT_OURS;
    tell_all()
  }
end:
  do
  :: shards_changed[me] || (of_sink[me] == DRAINING && in_flight[me] == 0) -> follow(me)
  :: atomic { /* a round claims an event; one that another worker has in flight is not yet deleted: it is claimed again */
      of_sink[me] == OURS && in_flight[me] == 0 && pending > 0 -> in_flight[me]++;
      assert(in_flight[1 - me] == 0)
    }
  :: atomic { in_flight[me] > 0 -> in_flight[me]--; pending--; recorded++ } /* sent, and record_ended() */
  :: atomic { /* superfluous(): worker_slot_resign() */
      workers == 1 && me == 1 && !mine[me] && !shards_changed[me] && in_flight[me] == 0 && present[me] -> leaves = true
    }
    break
#ifdef SLOT_BEFORE_THREADS
  :: workers == 1 && me == 1 && in_flight[me] > 0 && !leaves -> leaves = true; free_slot(me)
#endif
  od;
  atomic { if :: present[me] -> present[me] = false; slot_has[me] = false; slot_drains[me] = false; tell_all() :: else fi; child[me] = false }
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
