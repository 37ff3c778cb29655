/*
 * patience.h: when a test calls something hung. The bounds of the tests are those of a quiet machine; $PATIENCE,
 * which suites set, makes them longer, as test/rig/outbox_rig/wait.py does for the other tests.
 */
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdlib>

inline std::chrono::milliseconds patient(std::chrono::milliseconds bound) {
  const char *set = std::getenv("PATIENCE");
  const int factor = set ? std::atoi(set) : 1;
  return factor > 1 ? std::max<std::chrono::milliseconds>(factor * bound, std::chrono::minutes(1)) : bound;
}

/* The end of a wait that begins now. */
inline std::chrono::steady_clock::time_point patience_ends(std::chrono::milliseconds bound) {
  return std::chrono::steady_clock::now() + patient(bound);
}
