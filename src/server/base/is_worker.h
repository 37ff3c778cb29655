/* is_worker.h: is this process a worker? */
#pragma once

inline bool server_is_worker = false;
