/* is_worker.h: is this process a worker? The triggers on events queue a rescan for changes by users only. */
#pragma once

inline bool server_is_worker = false;
