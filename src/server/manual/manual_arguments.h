/* manual_arguments.h: checks what a program passes to outbox.claim(). */
#pragma once

#include "server/base/server.h"

extern "C" {
#include "utils/timestamp.h"
}

/* Errors where nothing may be written, or one of the first `n` arguments is NULL. */
void manual_check_call(FunctionCallInfo fcinfo, const char *function, int n, const char *const *names,
                       const char *example);

typedef struct ManualInterval {
  const char *name;
  int64 min_us, max_us;
  const char *range; /* in words */
  const char *hint;
} ManualInterval;

/* In microseconds; an error when it is out of range. */
int64 manual_interval(const Interval *given, const ManualInterval *argument);
