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

/* A table of the name may have been detached, or be so at this moment: so the list is asked, which has no errors. The
 * snapshot leaves out a partition whose DETACH CONCURRENTLY has begun. */
static bool is_partition(Oid table, Oid schema) {
  PushActiveSnapshot(GetLatestSnapshot());
  const bool found =
      OidIsValid(table) &&
      list_member_oid(find_inheritance_children(get_relname_relid("events_sent", schema), NoLock), table);
  PopActiveSnapshot();
  return found;
}

Retention sent_day_retention(Now now) {
  Assert(IsTransactionState());
  dispatch::SentDay &sent_day = dispatcher().sent_day;
  const int day = (int)(now.wall / USECS_PER_DAY);
  int year, month, mday;
  char name[NAMEDATALEN];

  if (sent_day.was_looked_for(day))
    return sent_day.answer();
  j2date(day + POSTGRES_EPOCH_JDATE, &year, &month, &mday);
  snprintf(name, sizeof(name), "events_sent_%04d%02d%02d", year, month, mday);
  const Oid schema = get_namespace_oid("outbox", false);
  const Oid table = get_relname_relid(name, schema);
  const Retention retention = sent_day.look(day, is_partition(table, schema), now.moment);
  if (retention == Retention::NONE && sent_day.warn(now.moment))
    ereport(WARNING,
            (errmsg("outbox deletes delivered events although they should be kept"),
             OidIsValid(table) ? errdetail("The table outbox.%s is no partition of outbox.events_sent.", name)
                               : errdetail("There is no partition outbox.%s.", name),
             errhint("SELECT * FROM outbox.doctor() WHERE \"check\" = 'retention';")));
  return retention;
}
