/*
 * events.h: the events of all measures, numbered from 1, the same for every program. Payloads are JSON as jsonb
 * prints it (keys by length, then by name), with words and numbers that differ from event to event.
 *
 * fixed  300 B, 1,000 keys in turn
 * wide   300 B, 10,000 keys in turn
 * small  about 100 B, keys as above: for backlogs of many millions
 * mixed  100 B to 10 KB, six of ten below 300 B and three of a hundred above 4 KB; 10,000 keys with a Zipf
 * distribution: the first has a tenth of all events
 */
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <string>
#include <string_view>
#include <vector>

namespace bench {

struct Event {
  std::string key, payload;
};

/* Pseudorandom content derived from the number: every program makes the same event n. */
class Noise {
public:
  explicit Noise(uint64_t seed) : state_(mix(seed)) {}
  uint64_t next() { return mix(state_ += 0x9e3779b97f4a7c15u); } /* splitmix64 */
  size_t below(size_t bound) { return static_cast<size_t>(next() % bound); }
  double part() { return static_cast<double>(next() >> 11) * 0x1p-53; }

private:
  static uint64_t mix(uint64_t z) {
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
  }
  uint64_t state_;
};

class Events {
public:
  enum class Kind { fixed, wide, small, mixed };

  static bool parse(std::string_view name, Kind &kind) {
    static constexpr std::string_view names[] = {"fixed", "wide", "small", "mixed"};
    for (size_t i = 0; i < std::size(names); i++)
      if (name == names[i]) {
        kind = static_cast<Kind>(i);
        return true;
      }
    return false;
  }

  explicit Events(Kind kind) : kind_(kind) {
    static constexpr std::string_view syllables[] = {"ba", "ke", "li",  "mo",  "nu",  "ra",  "se",  "ti",
                                                     "vo", "zu", "gar", "den", "pol", "mir", "tus", "han"};
    Noise noise(0);
    for (std::string &word : words_)
      for (size_t i = 1 + noise.below(4); i > 0; i--)
        word += syllables[noise.below(std::size(syllables))];
    double sum = 0;
    for (size_t rank = 1; kind == Kind::mixed && rank <= 10000; rank++)
      zipf_.push_back(sum += 1 / static_cast<double>(rank));
  }

  Event make(long n) const {
    Noise noise(static_cast<uint64_t>(n));
    std::string key =
        "k" + std::to_string(kind_ == Kind::mixed ? zipf(noise) : n % (kind_ == Kind::wide ? 10000 : 1000));
    size_t size = kind_ == Kind::mixed ? mixed_size(noise) : kind_ == Kind::small ? 100 : 300;

    std::string head = "{\"n\": " + std::to_string(n) + ", \"note\": \"", tail = "\"";
    if (size >= 200) {
      tail += ", \"items\": [";
      for (size_t items = 1 + size / 800; items > 0; items--) {
        tail += "{\"sku\": \"sku-" + std::to_string(noise.below(5000)) +
                "\", \"quantity\": " + std::to_string(1 + noise.below(9)) + "}";
        tail += items > 1 ? ", " : "]";
      }
      tail += ", \"order\": \"order-" + std::to_string(n) + "\", \"total\": " + std::to_string(noise.below(10000)) +
              ", \"status\": \"created\"";
    }
    tail += ", \"customer\": \"" + key + "\"}";
    for (size_t wanted = size - std::min(size, tail.size()); head.size() < wanted;) {
      if (noise.below(8) == 0)
        head += std::to_string(noise.below(1000000));
      else
        head += words_[noise.below(std::size(words_))];
      head += head.size() < wanted ? " " : "";
      if (head.size() > wanted)
        head.resize(wanted);
    }
    return {std::move(key), head + tail};
  }

private:
  size_t zipf(Noise &noise) const {
    double at = noise.part() * zipf_.back();
    return static_cast<size_t>(std::lower_bound(zipf_.begin(), zipf_.end(), at) - zipf_.begin());
  }
  static size_t mixed_size(Noise &noise) {
    size_t of_a_hundred = noise.below(100);
    if (of_a_hundred < 60)
      return 100 + noise.below(200);
    if (of_a_hundred < 85)
      return 300 + noise.below(700);
    return of_a_hundred < 97 ? 1000 + noise.below(3000) : 4000 + noise.below(6240);
  }

  Kind kind_;
  std::string words_[1000];
  std::vector<double> zipf_;
};

}  // namespace bench
