#include "event_insert.h"

extern "C" {
#include "lib/stringinfo.h"
#include "utils/memutils.h"
}

#include "owner_sql.h"

static EventWriter next_writer = WRITER_PERSON;

EventWriter event_writer_take(void) {
  EventWriter writer = next_writer;
  next_writer = WRITER_PERSON;
  return writer;
}

/* A repeated event whose writer said ON CONFLICT DO NOTHING must not fail in its copies. */
static char *statement(bool skip_duplicates) {
  StringInfoData sql, parameters;

  initStringInfo(&sql);
  initStringInfo(&parameters);
  appendStringInfoString(&sql, "INSERT INTO outbox.events_pending (");
  for (int i = 0; i < EV_GIVEN; i++) {
    appendStringInfo(&sql, "%s%s", i > 0 ? ", " : "", event_column_names[i]);
    appendStringInfo(&parameters, "%s$%d", i > 0 ? ", " : "", i + 1);
  }
  appendStringInfo(&sql, ") VALUES (%s)%s", parameters.data, skip_duplicates ? " ON CONFLICT DO NOTHING" : "");
  return MemoryContextStrdup(TopMemoryContext, sql.data);
}

void event_insert(EventWriter writer, Datum *values, const bool *isnull) {
  static OwnerSql inserts[2] = {{NULL, EV_GIVEN, event_column_types, NULL},
                                {NULL, EV_GIVEN, event_column_types, NULL}};
  OwnerSql *insert = &inserts[writer == WRITER_COPY];
  char nulls[EV_GIVEN];

  if (insert->text == NULL)
    insert->text = statement(writer == WRITER_COPY);
  for (int i = 0; i < EV_GIVEN; i++)
    nulls[i] = isnull[i] ? 'n' : ' ';

  next_writer = writer;
  PG_TRY();
  { owner_execute(insert, values, nulls); }
  PG_FINALLY();
  { next_writer = WRITER_PERSON; }
  PG_END_TRY();
}
