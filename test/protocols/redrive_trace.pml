/* redrive_trace.pml: replays in redrive.pml what a worker logged of a key's events and what a user did to them, each in its own order. */

#define MAY_RECORD(e) (entry[e] == SENT && !locked[e] && !(e > 0 && WAITS_FOR(0)) && !(e > 1 && WAITS_FOR(1)))

active proctype traced() {
  byte me, value, i;

end:
  do
  :: atomic { NEXT(CLAIMS) && MAY_CLAIM(WHO) && !(redriven[WHO] && LATER_HELD(WHO)) -> READ(traced); entry[me] = FLYING }
  :: atomic { redriven[0] && LATER_HELD(0) && MAY_CLAIM(0) -> LEAD(0) }
  :: atomic { redriven[1] && LATER_HELD(1) && MAY_CLAIM(1) -> LEAD(1) }
  :: outcome(0)
  :: outcome(1)
  :: outcome(2)
  :: atomic { NEXT(DIES) && entry[WHO] == REJECTED && !locked[WHO] -> READ(traced); record_dead(me) }
  :: atomic { NEXT(ENDS) && MAY_RECORD(WHO) -> READ(traced); record_sent(me) }
  :: atomic { REPLAYED -> assert(false) }
  od
}

/* What a user did: `value` says whether with force. */
active proctype user() {
  byte me, value;
  bool was;

end:
  do
  :: atomic { NEXT_OF_USER(LOCKS) && row[WHOM] == FAILED && !locked[WHOM] && (!overtaken[WHOM] || WITH_FORCE) ->
      READ_USER(user);
      locked[me] = true;
      was = overtaken[me]
    }
  :: atomic { NEXT_OF_USER(COMMITS) && locked[WHOM] ->
      READ_USER(user);
      locked[me] = false; row[me] = PENDING; redriven[me] = true; late[me] = value; overtaken[me] = was;
      RELEASE(me)
    }
  od
}
