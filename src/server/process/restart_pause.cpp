/* restart_pause.cpp: pauses double from 1 s to 1 min, and begin anew after a worker has run for 1 min. */
#include "server/process/restart_pause.h"

#include "server/process/worker_health.h"

static const int64 FIRST_PAUSE_MS = 1000;
static const int64 LAST_PAUSE_MS = 60000;

RestartPauses &restart_pauses(void) {
  static RestartPauses the_object;

  return the_object;
}

RestartPauses::Pause *RestartPauses::of(Oid database) {
  Pause *free_pause = NULL;

  for (Pause &pause : pauses_) {
    if (pause.database == database)
      return &pause;
    if (pause.database == InvalidOid && free_pause == NULL)
      free_pause = &pause;
  }
  if (free_pause)
    *free_pause = {database, 0, MOMENT_NONE};
  return free_pause;
}

void RestartPauses::failed(Oid database, Moment started, Now now) {
  Pause *pause = of(database);

  if (pause == NULL)
    return;
  if (moment_is_past(started, now.moment, LAST_PAUSE_MS))
    pause->failures = 0;
  const int64 delay = FIRST_PAUSE_MS << Min(pause->failures, 6);
  pause->failures++;
  pause->until = moment_after(now.moment, Min(delay, LAST_PAUSE_MS));
  worker_health_ended(database, pause->failures, now.wall, pause->until);
}

void RestartPauses::ended_as_told(Oid database) {
  forget(database);
  worker_health_ended(database, 0, 0, MOMENT_NONE);
}

void RestartPauses::forget(Oid database) {
  for (Pause &pause : pauses_)
    if (pause.database == database)
      pause.database = InvalidOid;
}

Moment RestartPauses::until(Oid database) const {
  for (const Pause &pause : pauses_)
    if (pause.database == database)
      return pause.until;
  return MOMENT_NONE;
}

/* A worker of this database has crashed: its pause goes on after the restart of the server. Records of databases that
 * are not served have no use. */
void RestartPauses::crashed(Oid database, const Crashes *crashes) {
  const Now now = now_read();

  LWLockAcquire(shared_state()->lock, LW_SHARED);
  const bool served = shared_database(database, false) != NULL;
  LWLockRelease(shared_state()->lock);
  Pause *pause = served && crashes->count > 0 ? of(database) : NULL;
  if (!served)
    crash_record_remove(database);
  if (pause == NULL)
    return;
  pause->failures = crashes->count;
  pause->until = moment_after(now.moment, crashes->pause_ms);
  worker_health_crashed(database, crashes->count, crashes->last, pause->until);
  if (crashes->is_new)
    ereport(LOG, (errmsg("outbox worker of database %u has crashed, crashes in a row: %d", database, crashes->count),
                  errdetail("The next one starts after %ld ms.", (long)crashes->pause_ms)));
}

void RestartPauses::count_crashes(TimestampTz now) {
  SharedState *shared = shared_state();

  if (shared->crashes_counted)
    return;
  crash_records_count(now, [](Oid database, const Crashes *crashes) { restart_pauses().crashed(database, crashes); });
  shared->crashes_counted = true;
}
