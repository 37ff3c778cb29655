/* probe.h: the page of a probe, whose steps appear as they happen. */
#pragma once

#include <memory>
#include <mutex>

#include "console/access/sessions.h"
#include "console/server/message.h"

namespace console {

/* Begins the probe of the sink that was posted. `held` is the session's lock: the answer keeps it until its end.
 * Throws DatabaseError. */
Response probe(std::shared_ptr<Session> session, std::unique_lock<std::mutex> held, const Request &request);

}  // namespace console
