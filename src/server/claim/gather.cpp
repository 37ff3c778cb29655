#include "server/claim/gather.h"

/* The rate is taken over so long: one transaction of many events is no load. */
static const int WINDOW_MS = 20;
/* A claim, and a request to each partition, cost about as much for one event as for twenty. Where fewer come than
 * this (a second), waiting would save little; above, the claims are so far apart for every thousand. */
static const int64 BUSY_RATE = 2000;
static const int64 MS_PER_THOUSAND = 2, LONGEST_MS = 20;

static Moment window_began = MOMENT_NONE, end = MOMENT_NONE;
static int64 in_window = 0, rate = 0;

void gather_claimed(Moment began, int events, bool more) {
  int64 elapsed = began.us - window_began.us; /* in microseconds */

  in_window += events;
  if (elapsed >= WINDOW_MS * 1000) {
    rate = in_window * USECS_PER_SEC / elapsed;
    window_began = began;
    in_window = 0;
  }
  end = more || rate < BUSY_RATE ? MOMENT_NONE : moment_after(began, Min(rate * MS_PER_THOUSAND / 1000, LONGEST_MS));
}

Moment gather_end(void) {
  return end;
}
