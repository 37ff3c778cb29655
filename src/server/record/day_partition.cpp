/*
 * day_partition.cpp: looks for today's partition of SENT once in each transaction: a user may detach or drop it at
 * any time, and an INSERT without it would fail.
 */
#include "server/record/day_partition.h"

#include "server/sinks/dispatcher.h"

extern "C" {
#include "access/xact.h"
#include "catalog/namespace.h"
#include "catalog/pg_inherits.h"
#include "utils/datetime.h"
#include "utils/lsyscache.h"
#include "utils/snapmgr.h"
}

using dispatch::Retention;

void sent_day_begin(void) {
  dispatcher().sent_day.begin();
}

/* The table of a day, by its name: a partition of outbox.events_sent, or one that a user has detached, or none. */
typedef struct DayTable {
  char name[NAMEDATALEN];
  Oid schema, oid;
} DayTable;

static int day_of(TimestampTz time) {
  return (int)(time / USECS_PER_DAY);
}

static DayTable find_day(int day) {
  DayTable table;
  int year, month, mday;

  j2date(day + POSTGRES_EPOCH_JDATE, &year, &month, &mday);
  snprintf(table.name, sizeof(table.name), "events_sent_%04d%02d%02d", year, month, mday);
  table.schema = get_namespace_oid("outbox", false);
  table.oid = get_relname_relid(table.name, table.schema);
  return table;
}

/* It may have been detached, or be so at this moment: so the list is asked, which has no errors. The snapshot leaves
 * out a partition whose DETACH CONCURRENTLY has begun. */
static bool is_partition(const DayTable &table) {
  PushActiveSnapshot(GetLatestSnapshot());
  const bool found =
      OidIsValid(table.oid) &&
      list_member_oid(find_inheritance_children(get_relname_relid("events_sent", table.schema), NoLock), table.oid);
  PopActiveSnapshot();
  return found;
}

bool sent_day_exists(TimestampTz time) {
  Assert(IsTransactionState());
  return is_partition(find_day(day_of(time)));
}

Retention sent_day_retention(Now now) {
  Assert(IsTransactionState());
  dispatch::SentDay &sent_day = dispatcher().sent_day;
  const int day = day_of(now.wall);

  if (sent_day.was_looked_for(day))
    return sent_day.answer();
  const DayTable table = find_day(day);
  const Retention retention = sent_day.look(day, is_partition(table), now.moment);
  if (retention == Retention::NONE && sent_day.warn(now.moment))
    ereport(WARNING, (errmsg("outbox deletes delivered events although they should be kept"),
                      OidIsValid(table.oid)
                          ? errdetail("The table outbox.%s is no partition of outbox.events_sent.", table.name)
                          : errdetail("There is no partition outbox.%s.", table.name),
                      errhint("SELECT * FROM outbox.doctor() WHERE \"check\" = 'retention';")));
  return retention;
}
