/*
 * idle.pml: two workers that go idle, and commits that need them. Each commit is one event of one worker's shards.
 * No commit falls between: when nothing can happen by itself any more, every committed event is claimed.
 *
 * It stands for wake_workers() and shared_request_workers() (session), Loop::turn(), Loop::exits_idle() and worker_slot_exit_idle() (worker),
 * worker_slot_take() and give_up_slot() (slot), and handle_exited(), stays_idle() and start_missing() (launcher). Timers are left
 * out on purpose: outbox.poll_interval, idle_until and the launcher's one-minute look repair what the protocol loses.
 * A step is what no other process can see half of: one atomic operation, or what is done under the lock.
 *
 * Each guard can be taken out: NO_COMPARE (the worker exits without comparing needs_wakeup), NO_LOOK_AT_IDLE (a session
 * does not look whether the database is idle), NO_LOOK_AT_EXITING (a session that one worker has heard does not mind
 * that another one exits), NO_ARMING_FIRST (a worker arms itself after its snapshot).
 */
#define WORKERS 2
#ifndef COMMITS
#define COMMITS 1 /* of each session */
#endif

mtype = { FREE, RUNNING, IDLE, LEAVING };

byte committed[WORKERS], claimed[WORKERS]; /* events of its shards */

/* WorkerSlot */
bool present[WORKERS];
mtype state[WORKERS] = FREE;
byte needs_wakeup[WORKERS]; /* 0 = awake, 1 = sleeps or is about to, 2 = exits */
bool latch[WORKERS];

/* DatabaseSlot */
bool database_idle, wakeup_requested;
bool exited_idle[WORKERS];

/* Launcher */
bool launcher_latch, child[WORKERS], child_ended[WORKERS];

bool locked; /* across steps; what is one step holds it within */

/* wake_workers() at one slot. That the slot may become another's between the two is left out. */
inline wake(i) {
  atomic {
    if
    :: present[i] ->
      heard = heard || needs_wakeup[i] < 2;
#ifndef NO_LOOK_AT_EXITING
      exits = exits || needs_wakeup[i] == 2;
#endif
      latch[i] = latch[i] || needs_wakeup[i] == 1;
      needs_wakeup[i] = 0
    :: else
    fi
  }
}

proctype session(byte shard) {
  byte n;
  bool heard, exits, called;

  do
  :: n < COMMITS ->
    atomic { committed[shard]++; n++ }
    wake(0);
    wake(1);
    atomic {
#ifndef NO_LOOK_AT_IDLE
      exits = exits || database_idle;
#endif
      called = !heard || exits;
      heard = false; exits = false
    }
    if
    :: called -> /* shared_request_workers() */
      atomic { called = !wakeup_requested; wakeup_requested = true }
      if
      :: called -> launcher_latch = true
      :: else
      fi
    :: else
    fi
  :: else -> break
  od
}

proctype worker(byte me) {
  bool wanted = true, exit;

  /* worker_slot_take() */
  atomic {
    !locked;
    present[me] = true; state[me] = RUNNING; needs_wakeup[me] = 0; latch[me] = false; wakeup_requested = false
  }
  do
  ::
#ifndef NO_ARMING_FIRST
    atomic { wanted = wanted || needs_wakeup[me] == 0; needs_wakeup[me] = 1 }
#endif
    atomic {
      if
      :: wanted -> claimed[me] = committed[me]; wanted = false
      :: else
      fi
    }
#ifdef NO_ARMING_FIRST
    atomic { wanted = wanted || needs_wakeup[me] == 0; needs_wakeup[me] = 1 }
#endif
    /* worker_slot_exit_idle() */
    atomic {
      !locked; locked = true;
      state[me] = IDLE;
      exit = database_idle || (present[0] && state[0] == IDLE && present[1] && state[1] == IDLE);
#ifdef NO_COMPARE
      needs_wakeup[me] = (exit -> 2 : needs_wakeup[me])
#else
      exit = exit && needs_wakeup[me] == 1;
      needs_wakeup[me] = (exit -> 2 : needs_wakeup[me])
#endif
    }
    atomic {
      if
      :: exit -> database_idle = true; state[me] = LEAVING; exited_idle[me] = true
      :: else
      fi;
      locked = false
    }
    if
    :: exit -> launcher_latch = true; break
    :: else
    fi;
end:
    atomic { latch[me] -> latch[me] = false; state[me] = RUNNING } /* worker_wait() */
  od;
  /* give_up_slot(), with shared_shards_changed() */
  atomic { !locked; present[me] = false; state[me] = FREE; latch[1 - me] = latch[1 - me] || present[1 - me] }
  atomic { child_ended[me] = true; launcher_latch = true }
}

inline handle_exited(i) {
  atomic {
    !locked;
    if
    :: child[i] && child_ended[i] -> assert(exited_idle[i]); exited_idle[i] = false; child[i] = false
    :: else
    fi
  }
}

inline start_missing(i) {
  atomic {
    if
    :: !child[i] -> child[i] = true; child_ended[i] = false; run worker(i)
    :: else
    fi
  }
}

proctype launcher() {
  bool idle;

  do
  ::
    handle_exited(0); handle_exited(1);
    atomic { !locked; idle = database_idle }
    if
    :: idle ->
      atomic { idle = !wakeup_requested }
      if
      :: !idle -> atomic { !locked; database_idle = false }
      :: else
      fi
    :: else
    fi;
    if
    :: !idle -> start_missing(0); start_missing(1)
    :: else
    fi;
end:
    atomic { launcher_latch -> launcher_latch = false }
  od
}

init {
  atomic { run launcher(); run session(0); run session(1) }
end:
  atomic {
    timeout;
    assert(claimed[0] == committed[0]);
    assert(claimed[1] == committed[1])
  }
}
