/*
 * crash_suspects.h: which sink or event crashes the worker.
 *
 * After a crash there is only what the worker has written before it: what it worked on (Work), and how it ended, if a
 * handler of fatal signals could still run (CrashEnd). SIGKILL leaves no trace: the OOM killer, a stack overflow in a
 * thread and somebody's kill -9 look the same. Somebody who kills the worker again and again must not make a sink
 * or an event guilty. So what was at work in a crash is only a suspect, and the worker tries it alone (careful.cpp),
 * after a pause of random length in which nothing is at work. A suspect that survives its trial is acquitted. A crash
 * while nothing is at work acquits all suspects.
 *
 * A crash by a fatal signal of the worker's own (SIGSEGV, abort()) proves that the cause is in the process: two of
 * them, the second in the trial, make a suspect guilty. A crash without a trace counts half, and only against what
 * has begun in the last half second: four in succession are needed, three of them in trials. A killer from outside
 * does not know when a trial begins, within six seconds: he hits three in succession in 1 of 1,700 cases, and not at
 * all within the first minute, in which a worker is careful three times.
 *
 * The object is stored in a file as it is: no pointers.
 */
#pragma once

#include <cstdint>
#include <span>

namespace dispatch {

/* One piece of a worker's work: an event (position <> 0), or the opening of a sink or loading of a kind (0). */
struct Work {
  uint32_t object; /* OID of a server, or of the validator of a kind; 0 = none */
  bool is_read;    /* the event is read from its row, which is the same work for each sink */
  bool is_new;     /* has begun within the last half second; false for what no SIGKILL can be the fault of */
  int64_t position;
  uint64_t row;   /* the place of the event's row: a row that was changed, as by outbox.redrive(), is another event */
  uint64_t build; /* of the library of an object; 0 = any */
};

/* How a worker has crashed. */
enum class CrashEnd : int32_t {
  UNKNOWN,      /* no handler could run */
  MAIN_THREAD,  /* its main thread raised a fatal signal … */
  OTHER_THREAD, /* … or another of its threads; or exit() was called */
  OUTSIDE       /* another process sent the signal */
};

enum class Guilt { NONE, SUSPECT, GUILTY };

class CrashSuspects {
public:
  /* A worker has crashed: `main` is what its main thread worked on, `at_work` what other threads did. */
  void blame(CrashEnd end, const Work &main, std::span<const Work> at_work) noexcept;

  Guilt of(const Work &work) const noexcept;
  bool knows_events() const noexcept;
  bool knows_guilty_object() const noexcept;

  /* It has survived its trial. */
  void acquit(const Work &work) noexcept;
  /* There was no crash for a while. */
  void acquit_all() noexcept;
  /* A server or a validator, and its events. Returns true if it was guilty. */
  bool forget(uint32_t object) noexcept;

  /* How long an opened sink is at work without an event. Threads of a kind may crash later, so crashes in which
   * nothing was at work make it longer. */
  int trial_ms() const noexcept;

private:
  struct Suspect {
    Work work;
    int32_t points; /* 0 and events = 0: the place is free */
    int32_t events; /* guilty ones of a sink */
  };

  Suspect *find(const Work &work) noexcept;
  Suspect *place_for(const Work &work) noexcept;
  void add(const Work &work, int points) noexcept;
  static bool is_guilty(const Suspect &suspect) noexcept;

  Suspect suspects_[32];
  int32_t next_;     /* gives its place to a new one when all are used */
  int32_t unplaced_; /* crashes of threads in which nothing was at work, as before a worker is careful */
};

}  // namespace dispatch
