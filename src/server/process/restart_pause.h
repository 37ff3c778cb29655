/*
 * restart_pause.h: how long a database waits for its next worker after its last ones have failed or crashed, so that
 * a cause that stays does not take the server's CPU, or, as a crash restarts the server, every session.
 *
 * A failure ends one process, and the launcher's memory counts it. A crash ends the launcher, too: after the restart
 * of the server the pauses are taken from the files in which crashes are counted (storage/crash_record.h).
 */
#pragma once

#include "server/base/clock.h"
#include "server/shmem/shared_state.h"
#include "server/storage/crash_record.h"

class RestartPauses final {
public:
  /* The database's worker has ended: by itself, after it had run since `started`, or because it was told to, which is
   * no failure. They tell worker_health.h. */
  void failed(Oid database, Moment started, Now now);
  void ended_as_told(Oid database);
  /* The cause may be gone: the next worker may start at once. */
  void forget(Oid database);
  /* When the next worker may start; MOMENT_NONE: at once. */
  Moment until(Oid database) const;

  /* Once after each restart of the server, also one that a crash has caused; later calls do nothing. */
  void count_crashes(TimestampTz now);

private:
  struct Pause {
    Oid database; /* InvalidOid: the place is free */
    int failures;
    Moment until;
  };

  /* Returns NULL when there is no place. */
  Pause *of(Oid database);
  void crashed(Oid database, const Crashes *crashes);

  Pause pauses_[OUTBOX_MAX_DATABASES] = {};
};

/* The launcher's one object. */
RestartPauses &restart_pauses(void);
