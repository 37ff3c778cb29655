/* error_class.h: tells errors that a row's data can cause from errors of the server. */
#pragma once

#include "server/base/server.h"

/* Can a row's data have caused an error with this SQLSTATE? Locks, a full disk, serialization failures, system errors
 * and a shutdown have other causes. */
static inline bool error_is_of_rows(int code) {
  int category = ERRCODE_TO_CATEGORY(code);

  return code != ERRCODE_LOCK_NOT_AVAILABLE && code != ERRCODE_DISK_FULL &&
         category != ERRCODE_TO_CATEGORY(ERRCODE_T_R_SERIALIZATION_FAILURE) &&
         category != ERRCODE_TO_CATEGORY(ERRCODE_OPERATOR_INTERVENTION) &&
         category != ERRCODE_TO_CATEGORY(ERRCODE_SYSTEM_ERROR);
}
