#include "server/hooks/former_schema.h"

extern "C" {
#include "commands/defrem.h"
#include "nodes/parsenodes.h"
}

static bool names_it(DefElem *option) {
  return strcmp(option->defname, "schema") == 0 && strcmp(defGetString(option), "outbox") == 0;
}

PlannedStmt *former_schema_left_out(PlannedStmt *planned) {
  ListCell *cell;

  if (!IsA(planned->utilityStmt, CreateExtensionStmt) ||
      strcmp(((CreateExtensionStmt *)planned->utilityStmt)->extname, "outbox") != 0)
    return planned;
  /* The tree may be a cached one. (copyObject() is no C++.) */
  PlannedStmt *copy = (PlannedStmt *)copyObjectImpl(planned);
  CreateExtensionStmt *create = (CreateExtensionStmt *)copy->utilityStmt;
  foreach (cell, create->options)
    if (names_it((DefElem *)lfirst(cell)))
      create->options = foreach_delete_current(create->options, cell);
  return copy;
}
