/*
 * redrive.pml: one key of an ordered sink, its dead letters, and a user who redrives them. An event that is sent after
 * a later one of its key was asked for with force; with on_dead_letter 'block' not even a dead letter is passed. When
 * nothing can happen by itself any more, every event is delivered or dead.
 *
 * It stands for classify_row() and RedriveOrder (claim), RecordRound::run(), record_sent() and mark_overtaken()
 * (recording), redrive() of 45_redrive.sql (user), and the delivery library, which sends the events of a key one after
 * the other and returns those behind one that failed. A step is a transaction, or an outcome of the sink.
 *
 * With TRACE it replays what a real worker logged of the events of a key and what a user did to them (trace.py). Both are in
 * order, each on its own; what the sink answered, and that an event waits for later ones, is not in the trace.
 *
 * Each guard can be taken out: NO_LATER_LOOK (a redriven event is claimed although a later one is in flight),
 * NO_SECOND_DEATH (a redriven row that is overtaken before it is claimed stays pending), NO_MARK (a dead letter is not told
 * that it was overtaken), NO_LOCK_LOOK (the recording does not wait for a row that the user has locked), NO_RETURN (the
 * library sends what is behind an event that failed). BLOCK: on_dead_letter is 'block'.
 */
#define N 3 /* events of the key, by position */
#define REDRIVES 2

#ifdef TRACE
#include "trace.pml"
#endif

mtype = { PENDING, FAILED, GONE };           /* the row */
mtype = { NOWHERE, FLYING, SENT, REJECTED }; /* the worker's entry of it */

mtype row[N] = PENDING, entry[N] = NOWHERE;
bool redriven[N], late[N], overtaken[N], locked[N], delivered[N];
byte blocker = N; /* of the key; N = it is free */
byte redrives;

/* When its blocker is through, the key drains; with 'block' it meets its first dead letter (scan_draining()). */
#ifdef BLOCK
#define FIRST_DEAD (row[0] == FAILED -> 0 : (row[1] == FAILED -> 1 : (row[2] == FAILED -> 2 : N)))
#else
#define FIRST_DEAD N
#endif
#define RELEASE(e) blocker = (blocker == e -> FIRST_DEAD : blocker)
#define LEAD(e) blocker = (e < blocker -> e : blocker)

#define LATER_DELIVERED(e) ((e < 1 && delivered[1]) || (e < 2 && delivered[2]))
#define LATER_HELD(e) ((e < 1 && entry[1] != NOWHERE) || (e < 2 && entry[2] != NOWHERE))
#define EARLIER_FLYING(e) ((e > 0 && entry[0] == FLYING) || (e > 1 && entry[1] == FLYING))
#define EARLIER_UNCLAIMED(e) ((e > 0 && row[0] == PENDING && entry[0] == NOWHERE && !redriven[0]) || \
                              (e > 1 && row[1] == PENDING && entry[1] == NOWHERE && !redriven[1]))

/* A row of the main scan comes in its turn; a redriven one is found by the rescan, whenever. */
#define MAY_CLAIM(e) (row[e] == PENDING && entry[e] == NOWHERE && !locked[e] && (blocker == N || e <= blocker) && \
                      (redriven[e] || !EARLIER_UNCLAIMED(e)))

inline claim(e) {
  atomic {
    MAY_CLAIM(e);
    if
#ifndef NO_LATER_LOOK
    :: redriven[e] && LATER_HELD(e) -> LEAD(e) /* wait_for_later_events() */
#endif
    :: else -> entry[e] = FLYING
    fi
  }
}

inline outcome(e) {
  atomic {
    entry[e] == FLYING && !EARLIER_FLYING(e);
    if
    :: assert(!LATER_DELIVERED(e) || late[e]);
#ifdef BLOCK
      assert(late[e] || !((e > 0 && row[0] == FAILED && !overtaken[0]) || (e > 1 && row[1] == FAILED && !overtaken[1])));
#endif
      delivered[e] = true; entry[e] = SENT
    :: entry[e] = REJECTED;
#if defined(BLOCK) && !defined(NO_RETURN)
      LEAD(e);
      i = e + 1; /* what is behind it comes back */
      do
      :: i < N -> entry[i] = (entry[i] == FLYING -> NOWHERE : entry[i]); i++
      :: else -> break
      od
#endif
    fi
  }
}

/* Recording: the failures first, then what was delivered. One transaction. */
inline record_dead(e) {
  if
  :: entry[e] == REJECTED && !locked[e] ->
    entry[e] = NOWHERE; row[e] = FAILED; redriven[e] = false; late[e] = false;
#ifdef BLOCK
    LEAD(e)
#else
    RELEASE(e)
#endif
  :: else
  fi
}

/* May the delivery of `e` be recorded, as far as the earlier event `f` goes? And what becomes of that one. */
#ifdef NO_LOCK_LOOK
#define HELD_BY_USER(f) false
#else
#define HELD_BY_USER(f) locked[f]
#endif
#define WAITS_FOR(f) (row[f] != GONE && !overtaken[f] && \
    (entry[f] == REJECTED || HELD_BY_USER(f) || (entry[f] == FLYING && redriven[f] && !late[f])))

inline overtake(f) {
  if
#ifndef NO_MARK
  :: row[f] == FAILED || (row[f] == PENDING && late[f] && entry[f] != SENT) -> overtaken[f] = true
#endif
#ifndef NO_SECOND_DEATH
  :: row[f] == PENDING && entry[f] == NOWHERE && redriven[f] && !late[f] ->
    row[f] = FAILED; redriven[f] = false; overtaken[f] = true;
#ifdef BLOCK
    LEAD(f)
#else
    RELEASE(f)
#endif
#endif
  :: else
  fi
}

inline record_sent(e) {
  if
  :: entry[e] == SENT && !locked[e] && !(e > 0 && WAITS_FOR(0)) && !(e > 1 && WAITS_FOR(1)) ->
    if :: e > 0 -> overtake(0) :: else fi;
    if :: e > 1 -> overtake(1) :: else fi;
    entry[e] = NOWHERE; row[e] = GONE;
    RELEASE(e)
  :: else
  fi
}

#define ANY_ENDED (entry[0] > FLYING || entry[1] > FLYING || entry[2] > FLYING)
#define ENDED(e) (entry[e] == SENT || entry[e] == REJECTED)

#ifndef TRACE
active proctype worker() {
  byte i;

end:
  do
  :: claim(0)
  :: claim(1)
  :: claim(2)
  :: outcome(0)
  :: outcome(1)
  :: outcome(2)
  :: atomic {
      ENDED(0) || ENDED(1) || ENDED(2);
      record_dead(0); record_dead(1); record_dead(2);
      record_sent(0); record_sent(1); record_sent(2)
    }
  od
}

/* redrive(): the row is locked and looked at, and goes back at the commit. The rescan queue names it, so that a key
 * which it blocked is free again. */
inline redrive(e, force) {
  atomic { row[e] == FAILED && redrives < REDRIVES && (!overtaken[e] || force) -> locked[e] = true; redrives++; was = overtaken[e] }
  atomic {
    locked[e] = false; row[e] = PENDING; redriven[e] = true; late[e] = force; overtaken[e] = was;
    RELEASE(e)
  }
}

active proctype user() {
  bool was;

end:
  do
  :: redrive(0, false)
  :: redrive(1, false)
  :: redrive(2, false)
  :: redrive(0, true)
  :: redrive(1, true)
  od
}

#else
#include "redrive_trace.pml"
#endif

#ifndef TRACE
init {
end:
  atomic {
    timeout;
    assert(row[0] != PENDING || (blocker < 0));
    assert(row[1] != PENDING || (blocker < 1 && row[blocker] == FAILED));
    assert(row[2] != PENDING || (blocker < 2 && row[blocker] == FAILED))
  }
}
#endif
