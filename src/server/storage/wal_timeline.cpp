/* wal_timeline.cpp: asks the server. A worker's does not change, since workers run on a primary only. */
#include "server/storage/wal_timeline.h"

extern "C" {
#include "access/xlog.h"
#include "access/xlogrecovery.h"
}

TimeLineID wal_timeline(void) {
  TimeLineID timeline = 0;

  if (!RecoveryInProgress())
    return GetWALInsertionTimeLine();
  (void)GetXLogReplayRecPtr(&timeline);
  return timeline;
}
