/* manual_end.h: how what was claimed has ended. */
#pragma once

#include "server/manual/manual_sink.h"

/* Puts a leased event back with this error, as outbox.nack() would, but no attempt is spent: it is not delivery's. */
void manual_put_back(const ManualSink *sink, const pg_uuid_t *token, int64 position, const char *error,
                     int64 retry_in_ms);
