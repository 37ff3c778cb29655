/*
 * manual_arguments.cpp: each error names the argument and shows a call that works.
 */

#include "server/manual/manual_arguments.h"

extern "C" {
#include "access/xlog.h"
#include "common/int.h"
#include "tcop/utility.h"
#include "utils/builtins.h"
#include "utils/timestamp.h"
}

void manual_check_call(FunctionCallInfo fcinfo, const char *function, int n, const char *const *names,
                       const char *example) {
  PreventCommandDuringRecovery(function);
  PreventCommandIfReadOnly(function);
  PreventCommandIfParallelMode(function);
  for (int i = 0; i < n; i++)
    if (PG_ARGISNULL(i))
      ereport(ERROR, (errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED), errmsg("\"%s\" must not be null", names[i]),
                      errhint("%s", example)));
}

int64 manual_interval(const Interval *given, const ManualInterval *argument) {
  int64 days = (int64)given->month * DAYS_PER_MONTH + given->day;
  int64 us;

  if (pg_mul_s64_overflow(days, USECS_PER_DAY, &us) || pg_add_s64_overflow(us, given->time, &us) ||
      us < argument->min_us || us > argument->max_us)
    ereport(ERROR,
            (errcode(ERRCODE_INVALID_PARAMETER_VALUE), errmsg("%s is out of range", argument->name),
             errdetail("It is %s, and must be %s.",
                       DatumGetCString(DirectFunctionCall1(interval_out, IntervalPGetDatum(given))), argument->range),
             errhint("%s", argument->hint)));
  return us;
}
