/*
 * fuzz.h: what all fuzz targets share. A target is a file that defines fuzz::one_input(); it states properties with
 * HOLDS(), and libFuzzer keeps the input for which one does not hold. Text comes in lines, so that a corpus can be
 * read and written by hand.
 *
 * Time is a property too: an input may take 100 ms and 20 µs per byte of CPU time, sanitizers included, in one of
 * five tries: the first one may load a library, and a virtual machine's clock counts what its host takes away. One
 * input in 4,096 is also tried repeated to 64 kB, where quadratic time shows.
 */
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <functional>
#include <string>
#include <string_view>

#include "delivery/options/options.h"

namespace fuzz {

void one_input(std::string_view data);

[[noreturn]] inline void broken(const char *property, const char *file, int line) {
  fprintf(stderr, "%s:%d: does not hold: %s\n", file, line, property);
  abort();
}
#define HOLDS(property) ((property) ? void() : fuzz::broken(#property, __FILE__, __LINE__))

/* Takes the data apart: lines, numbers, and the rest. */
class Input {
public:
  explicit Input(std::string_view data) : rest_(data) {}

  /* Without its line break. */
  std::string line() {
    size_t end = rest_.find('\n');
    std::string text(rest_.substr(0, end));
    rest_.remove_prefix(end == rest_.npos ? rest_.size() : end + 1);
    return text;
  }
  /* A byte less '0': a digit in a corpus that is written by hand. */
  uint8_t digit() {
    if (rest_.empty())
      return 0;
    auto byte = static_cast<uint8_t>(rest_.front() - '0');
    rest_.remove_prefix(1);
    return byte;
  }
  /* Eight bytes, or fewer. */
  int64_t number() {
    uint64_t value = 0;
    for (int i = 0; i < 8 && !rest_.empty(); i++, rest_.remove_prefix(1))
      value = value << 8 | static_cast<unsigned char>(rest_.front());
    return static_cast<int64_t>(value);
  }
  std::string rest() {
    std::string text(rest_);
    rest_ = {};
    return text;
  }
  bool empty() const { return rest_.empty(); }

private:
  std::string_view rest_;
};

/* As PostgreSQL gives texts to the delivery library: there is no NUL in them. */
inline std::string without_nul(std::string text) {
  text.resize(std::min(text.size(), text.find('\0')));
  return text;
}

/* Runs what may throw BadInput; true when it does not. A refusal names something to read. */
template <class Body> bool accepted(Body body) {
  try {
    body();
    return true;
  } catch (const outbox::BadInput &bad) {
    HOLDS(*bad.what() != '\0');
    return false;
  }
}

inline int64_t cpu_us() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return now.tv_sec * 1'000'000 + now.tv_nsec / 1000;
}

/* Without coverage: libFuzzer makes inputs from what is compared, and times would make each run another one. */
__attribute__((no_sanitize("coverage"))) inline void within_time(std::string_view data) {
  constexpr int64_t base_us = 100'000, per_byte_us = 20;
  constexpr int most_tries = 5;
  const int64_t limit_us = base_us + per_byte_us * static_cast<int64_t>(data.size());
  for (int tries = 1;; tries++) {
    int64_t begin = cpu_us();
    one_input(data);
    if (cpu_us() - begin <= limit_us)
      return;
    HOLDS(tries < most_tries);
  }
}

}  // namespace fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size) {
  constexpr size_t large = 65'536;
  std::string_view data(reinterpret_cast<const char *>(bytes), size);
  fuzz::within_time(data);
  if (size > 0 && size < large && std::hash<std::string_view>()(data) % 4096 == 0) {
    std::string repeated;
    while (repeated.size() < large)
      repeated += data;
    fuzz::within_time(repeated);
  }
  return 0;
}
