/* is_worker.h: is this process a worker? Its own UPDATEs and DELETEs of events are no user's: they queue_rescan
 * nothing. */
#pragma once

inline bool server_is_worker = false;
