/* error_class.h: what an error's SQLSTATE says about who is to blame. */
#pragma once

#include "server/base/server.h"

/* May a row be to blame for an error with this SQLSTATE? Not for a lock, a full disk or the end. */
static inline bool error_is_of_rows(int code) {
  int category = ERRCODE_TO_CATEGORY(code);

  return code != ERRCODE_LOCK_NOT_AVAILABLE && code != ERRCODE_DISK_FULL &&
         category != ERRCODE_TO_CATEGORY(ERRCODE_T_R_SERIALIZATION_FAILURE) &&
         category != ERRCODE_TO_CATEGORY(ERRCODE_OPERATOR_INTERVENTION) &&
         category != ERRCODE_TO_CATEGORY(ERRCODE_SYSTEM_ERROR);
}
