/*
 * script.h: what happens in a world besides its workers, as a list of actions. All of it is drawn from the seed. Each
 * action carries its own random numbers, so that a failing script can be made shorter by leaving actions out.
 */
#pragma once

#include <cstdint>
#include <vector>

namespace simulate {

enum class Action : uint8_t {
  ENQUEUE,     /* a producer's transaction: commits, rolls back, or is prepared; with subtransactions */
  LOCK,        /* a user locks some rows for a while */
  CHANGE,      /* a user changes the time, the sink or the key of a row, or deletes it */
  REDRIVE,     /* of some dead letters, with and without force */
  OUTAGE,      /* a sink is down for a while */
  LOSE,        /* a destination is gone with all that is in flight */
  PAUSE,       /* a sink is stopped, and resumed later */
  ALTER,       /* a sink is altered: it is closed and opened anew */
  KILL_WORKER, /* at its n-th step from now */
  KILL_SERVER,
  CLOCK,      /* is set, forth or back */
  WORKERS,    /* their number changes */
  FAIL_ROUND, /* the transaction of a worker fails at its n-th step from now */
  BAD_ROW,    /* a row cannot be recorded for a while */
  BAD_SINK,   /* nothing of a sink can be recorded, for a while or for ever */
  LAST
};

const char *name_of(Action action);

struct ScriptAction {
  int64_t at_us;
  Action action;
  uint64_t drawn;
};

struct Script {
  uint64_t seed;
  std::vector<ScriptAction> actions;
};

/* `level`: 1 = one worker, commits in any order, refusals; 2 = with faults and users; 3 = several workers too. */
Script make_script(uint64_t seed, int level);

}  // namespace simulate
