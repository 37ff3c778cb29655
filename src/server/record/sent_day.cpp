/*
 * sent_day.cpp: looks for today's partition of SENT once a day. While there is none it looks for each event, since
 * the partition may be made at any time.
 */
#include "server/record/sent_day.h"

#include "server/sinks/dispatcher.h"

extern "C" {
#include "access/xact.h"
#include "catalog/namespace.h"
#include "utils/datetime.h"
#include "utils/lsyscache.h"
}

using dispatch::Retention;

Retention sent_day_retention(Now now) {
  Assert(IsTransactionState());
  dispatch::SentDay &sent_day = dispatcher().sent_day;
  const int day = (int)(now.wall / USECS_PER_DAY);
  int year, month, mday;
  char name[NAMEDATALEN];

  if (sent_day.is_ready(day))
    return Retention::KEPT;
  j2date(day + POSTGRES_EPOCH_JDATE, &year, &month, &mday);
  snprintf(name, sizeof(name), "events_sent_%04d%02d%02d", year, month, mday);
  const bool exists = OidIsValid(get_relname_relid(name, get_namespace_oid("outbox", false)));
  const Retention retention = sent_day.look(day, exists, now.moment);
  if (retention == Retention::NONE && sent_day.warn(now.moment))
    ereport(WARNING,
            (errmsg("outbox deletes delivered events although they should be kept"),
             errdetail("There is no partition outbox.%s.", name), errhint("SELECT outbox.run_maintenance();")));
  return retention;
}
