/*
 * shim.h: makes one allocation or one call of the code under test fail. Only threads that are armed count: the
 * scenario's thread within the delivery API (Armed), and each thread that an armed thread starts. So the scenario and
 * its peers never fail themselves.
 */
#pragma once

#include <atomic>
#include <cstddef>
#include <utility>

namespace calls {

enum class Kind { None, Allocation, Call };

/* In memory that the open_sink shares with the process of each run. */
struct Injection {
  static constexpr int most_frames = 48;

  Kind kind = Kind::None; /* which n-th one fails; the open_sink writes both before the run */
  long n = 0;
  std::atomic<long> allocations{0}, calls{0}; /* so many were counted */
  std::atomic<bool> happened{false};
  char name[40] = ""; /* what failed: "operator new", "connect" */
  int n_frames = 0;
  void *frames[most_frames] = {};
};

/* From now on armed threads count, and the chosen allocation or call fails. */
void begin(Injection *injection);
/* Nothing fails and nothing is counted any more. */
void end();

extern thread_local bool armed;

/* Arms (or disarms) the calling thread while it lives. */
class Armed {
public:
  explicit Armed(bool on = true) : before_(std::exchange(armed, on)) {}
  ~Armed() { armed = before_; }
  Armed(const Armed &) = delete;
  Armed &operator=(const Armed &) = delete;

private:
  const bool before_;
};

/* Runs `body` armed and returns its result. */
template <class Body> auto under_test(Body body) {
  Armed here;
  return body();
}

}  // namespace calls
