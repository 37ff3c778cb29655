/* claim_round.cpp: what one round of claiming gathers. One object, zeroed when a round begins. */
#include "server/claim/claim_round.h"

#include "server/base/grow.h"

Round claim_round;

void round_mark(Mark mark) {
  make_room(claim_round.marks, claim_round.n_marks, claim_round.max_marks, claim_round.context);
  claim_round.marks[claim_round.n_marks++] = mark;
}
