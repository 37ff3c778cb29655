/*
 * timeline.cpp: for outbox.doctor(): which timeline of the WAL this server is on, and whether it was left behind. A
 * history file of a later timeline, which a standby or an archive brings, tells where that one has left ours. An old
 * primary that was only asleep has no such file: it cannot know.
 */
#include "server/base/library_version.h"
#include "server/base/sql_function.h"
#include "server/storage/wal_timeline.h"

extern "C" {
#include "access/htup_details.h"
#include "access/xlog.h"
#include "access/xlog_internal.h"
#include "access/xlogrecovery.h"
#include "funcapi.h"
#include "storage/fd.h"
#include "utils/pg_lsn.h"
}

/* The latest timeline of which there is a history file. */
static TimeLineID latest_timeline(void) {
  TimeLineID latest = 0;
  DIR *directory = AllocateDir(XLOGDIR);

  for (struct dirent *entry; (entry = ReadDirExtended(directory, XLOGDIR, LOG)) != NULL;)
    if (IsTLHistoryFileName(entry->d_name))
      latest = Max(latest, (TimeLineID)strtoul(entry->d_name, NULL, 16));
  FreeDir(directory);
  return latest;
}

/* Where the history of `later` leaves `ours`; InvalidXLogRecPtr: ours is no part of it. */
static XLogRecPtr left_at(TimeLineID later, TimeLineID ours) {
  char path[MAXPGPATH], line[MAXPGPATH];
  XLogRecPtr lsn = InvalidXLogRecPtr;

  TLHistoryFilePath(path, later);
  FILE *file = AllocateFile(path, "r");
  if (file == NULL && errno != ENOENT)
    ereport(ERROR, (errcode_for_file_access(), errmsg("could not open file \"%s\": %m", path)));
  if (file == NULL) /* it was removed meanwhile */
    return lsn;
  while (fgets(line, sizeof(line), file)) {
    TimeLineID of;
    uint32 high, low;
    if (sscanf(line, "%u\t%X/%X", &of, &high, &low) == 3 && of == ours)
      lsn = (XLogRecPtr)high << 32 | low;
  }
  FreeFile(file);
  return lsn;
}

SQL_FUNCTION(outbox_timeline) {
  TupleDesc desc = row_type_of(fcinfo, 3);
  const TimeLineID ours = wal_timeline(), latest = latest_timeline();
  Datum values[3] = {Int64GetDatum(ours), 0, 0};
  bool nulls[3] = {false, true, true};
  const XLogRecPtr here = RecoveryInProgress() ? GetXLogReplayRecPtr(NULL) : GetFlushRecPtr(NULL);
  const XLogRecPtr left = latest > ours ? left_at(latest, ours) : InvalidXLogRecPtr;

  if (!XLogRecPtrIsInvalid(left) && left < here) {
    values[1] = Int64GetDatum(latest);
    values[2] = LSNGetDatum(left);
    nulls[1] = nulls[2] = false;
  }
  PG_RETURN_DATUM(HeapTupleGetDatum(heap_form_tuple(desc, values, nulls)));
}
