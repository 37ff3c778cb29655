/* claim_round.cpp: what one round of claiming gathers. One object, zeroed when a round begins. */
#include "server/claim/claim_round.h"

extern "C" {
#include "utils/memutils.h"
}

Round claim_round;

void round_mark(Mark mark) {
  if (claim_round.n_marks == claim_round.max_marks) {
    claim_round.max_marks = Max(64, claim_round.max_marks * 2);
    claim_round.marks = claim_round.marks
                            ? (Mark *)repalloc(claim_round.marks, sizeof(Mark) * claim_round.max_marks)
                            : (Mark *)MemoryContextAlloc(claim_round.context, sizeof(Mark) * claim_round.max_marks);
  }
  claim_round.marks[claim_round.n_marks++] = mark;
}
