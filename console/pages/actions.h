/* actions.h: what buttons do: one public function of outbox each, with the rights of the session's role. */
#pragma once

#include <string>

#include "console/pages/page.h"

namespace console {

/* Does what was posted to request.path, and says in session.told what came of it. Returns where to go next; empty:
 * there is no such action. Throws DatabaseError. */
std::string act(Page &page);

}  // namespace console
