/* shards_trace.pml: replays a trace in shards.pml. One process stands for all workers, because their lines are in one order. */

/* What its line says it has after the step: 0 = nothing of the shard, 1 = it may claim, 2 = it drains; 3 more if it owns it. */
#define AGREES refused = (value != of_sink[me] - NOT_OURS + (mine[me] -> 3 : 0)); \
  c_code { furthest -= now.refused && furthest == now.at - 1; }

active proctype traced() {
  bool drained, look, given;
  byte me, value;

end:
  do
  :: atomic { NEXT(SHARD_IS) -> READ(traced); shard = value }
  :: atomic { NEXT(SPREAD) -> READ(traced); workers = value; tell_all() }
  :: atomic { NEXT(TAKES) && !HAS(present, WHO) -> READ(traced); take_slot(me) }
  :: atomic { NEXT(FOLLOWS) && HAS(present, WHO) -> READ(traced); if :: look = true :: look = false fi; exchange(me); AGREES }
  :: atomic { NEXT(BEGINS) && HAS(present, WHO) && in_flight[WHO] == 0 -> /* shards_add_sink(); of earlier it logged nothing */
      READ(traced);
      mine[me] = value >= 3 && !OTHERS(slot_has, me);
      PUT(slot_has, me, mine[me]);
      of_sink[me] = (mine[me] && !OTHERS(slot_drains, me) -> OURS : NOT_OURS);
      AGREES
    }
  :: atomic { NEXT(CLAIMS) && MAY_CLAIM(WHO) && in_flight_anywhere == in_flight[WHO] -> READ(traced); claim(me) }
  :: atomic { NEXT(ENDS) && in_flight[WHO] > 0 -> READ(traced); recorded_one(me) }
  :: atomic { NEXT(RESIGNS) && HAS(present, WHO) && MAY_RESIGN(WHO) -> READ(traced); free_slot(me) }
  :: atomic { NEXT(EXITS) && HAS(present, WHO) -> /* its threads have ended; a restart reads what it had in flight */
      READ(traced);
      in_flight_anywhere = in_flight_anywhere - in_flight[me];
      in_flight[me] = 0;
      free_slot(me)
    }
  :: atomic { REPLAYED -> assert(false) }
  od
}
