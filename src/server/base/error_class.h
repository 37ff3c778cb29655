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

/* Does the DETAIL of an error with this SQLSTATE show values of a row, its payload among them ("Failing row contains
 * (...)", "Key (...)=(...)")? It belongs neither into the log nor into last_error; the message names the constraint.
 */
static inline bool error_detail_shows_rows(int code) {
  return ERRCODE_TO_CATEGORY(code) == ERRCODE_TO_CATEGORY(ERRCODE_INTEGRITY_CONSTRAINT_VIOLATION);
}

/* Like error_is_of_rows(), for an error after which later events of the row's key overtake it. So memory and other
 * limits of the server do not count. */
static inline bool error_is_of_row_to_leave_out(int code) {
  return error_is_of_rows(code) && ERRCODE_TO_CATEGORY(code) != ERRCODE_TO_CATEGORY(ERRCODE_INSUFFICIENT_RESOURCES);
}

/* The same for an error of a statement that writes the row. Nor do missing tables and rights, a read-only transaction
 * and a damaged index count, which every row would meet. */
static inline bool error_is_of_written_row(int code) {
  int category = ERRCODE_TO_CATEGORY(code);

  return error_is_of_row_to_leave_out(code) &&
         category != ERRCODE_TO_CATEGORY(ERRCODE_SYNTAX_ERROR_OR_ACCESS_RULE_VIOLATION) &&
         category != ERRCODE_TO_CATEGORY(ERRCODE_INVALID_TRANSACTION_STATE) &&
         category != ERRCODE_TO_CATEGORY(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE) &&
         category != ERRCODE_TO_CATEGORY(ERRCODE_INTERNAL_ERROR);
}
