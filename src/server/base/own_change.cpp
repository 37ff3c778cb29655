/* own_change.cpp: a trigger that an own statement fires is one level deeper than the statement. */
#include "server/base/own_change.h"

extern "C" {
#include "utils/fmgrprotos.h"
}

static const int NONE = -1;
static int own_depth = NONE;

int trigger_depth(void) {
  return DatumGetInt32(DirectFunctionCall1(pg_trigger_depth, (Datum)0));
}

int own_changes_begin(void) {
  const int before = own_depth;

  own_depth = trigger_depth();
  return before;
}

void own_changes_end(int before) {
  own_depth = before;
}

bool is_own_change(void) {
  return own_depth != NONE && trigger_depth() == own_depth + 1;
}
