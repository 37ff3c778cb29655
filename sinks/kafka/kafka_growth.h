/*
 * kafka_growth.h: whether a sink needs more producers. One has one request in flight per broker, so that no batch
 * overtakes a refused one, and librdkafka puts one partition into a request: across a network, events wait for the
 * requests of other partitions. Over 2 ms of round trip, at 1,000 events/s and with 12 partitions, p50 was 27 ms with
 * one producer and 2.5 ms with eight. On the broker's own machine more producers only cost CPU.
 *
 * So the number grows when the broker that is farthest away hardly ever answers faster than `far_away`, and events
 * are in flight for much longer than a request. A request with many bytes takes a near broker long, too: in a drain
 * on a machine with a load of 12 on two cores even its fast answers took a millisecond. Time is a parameter; used by
 * one thread.
 */
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <numeric>

namespace outbox {

/* How long answers take when nothing delays them: about what the network needs. 0 = not known. */
struct KafkaRoundTrips {
  std::chrono::microseconds network{0}; /* of any request */
  std::chrono::microseconds produce{0}; /* of a request with events, which may wait for other brokers and disks */
  uint64_t n_produce = 0;               /* how many requests with events all brokers have answered */
};

/* How long a broker takes to answer. Only the fastest twentieth counts: most answers wait for something, and a few
 * are taken for faster than they are, because the thread that had sent the request lost its processor before it noted
 * the time.
 */
class KafkaAnswerTimes {
public:
  void add(std::chrono::microseconds took) {
    counts_[bucket(static_cast<uint64_t>(std::max<int64_t>(took.count(), 1)))]++;
    if (++n_ < remembered)
      return;
    n_ = 0;
    for (uint32_t &count : counts_)
      n_ += count /= 2;
  }
  /* 0 without enough answers: a broker's first ones show how long its caches are cold. */
  std::chrono::microseconds fast() const {
    if (n_ < enough)
      return {};
    size_t at = 0;
    for (uint32_t seen = counts_[0]; seen * 20 < n_;)
      seen += counts_[++at];
    return std::chrono::microseconds(beginning(at));
  }

private:
  static constexpr uint32_t enough = 20, remembered = 2048;
  /* Four for each power of two. */
  static constexpr size_t bucket(uint64_t n) {
    const auto bits = static_cast<size_t>(std::bit_width(n));
    return n < 4 ? n : std::min<size_t>(4 * (bits - 2) + ((n >> (bits - 3)) & 3), 127);
  }
  static constexpr uint64_t beginning(size_t bucket) {
    return bucket < 4 ? bucket : (4 + bucket % 4) << (bucket / 4 - 1);
  }

  std::array<uint32_t, 128> counts_{};
  uint32_t n_ = 0;
};

class KafkaGrowth {
public:
  using Time = std::chrono::steady_clock::time_point;

  static constexpr size_t many_producers = 6; /* it has grown twice */
  static constexpr std::chrono::microseconds far_away{700};
  static constexpr size_t bytes_per_us = 50; /* so fast a broker handles a large request at least */
  static constexpr int much_longer = 2;
  static constexpr std::chrono::milliseconds window{500};
  static constexpr size_t enough_events = 100;
  static constexpr int windows_in_a_row = 2;

  /* The number after this one: about four, then about eight, and so that the producers share as few of the partitions
   * as possible (kafka_order.h). */
  static constexpr size_t next(size_t producers, size_t partitions) {
    size_t best = 0;
    for (size_t n : producers == 1 ? std::array<size_t, 3>{4, 5, 3} : std::array<size_t, 3>{8, 7, 6})
      if (best == 0 || std::gcd(n, partitions) > std::gcd(best, partitions))
        best = n;
    return best;
  }

  /* Events with so many bytes were acknowledged that have been in flight for so long, added up. */
  void acknowledged(size_t events, size_t bytes, std::chrono::nanoseconds in_flight) {
    events_ += events;
    bytes_ += bytes;
    in_flight_ += in_flight;
  }

  /* More producers should be opened. Call it often. */
  bool is_wanted(const KafkaRoundTrips &fast, Time now) {
    if (now < begun_ + window || events_ < enough_events)
      return false;
    const std::chrono::nanoseconds mean = in_flight_ / static_cast<int64_t>(events_);
    const uint64_t requests = fast.n_produce > answered_ ? fast.n_produce - answered_ : 1;
    const std::chrono::microseconds far = far_away + std::chrono::microseconds(bytes_ / requests / bytes_per_us);
    answered_ = fast.n_produce;
    const bool waits =
        fast.network >= far && fast.produce.count() > 0 && mean >= much_longer * std::max(fast.network, fast.produce);
    in_a_row_ = waits ? in_a_row_ + 1 : 0;
    begin(now);
    return in_a_row_ >= windows_in_a_row;
  }

  /* Nothing of before counts any more. */
  void restart(Time now) {
    in_a_row_ = 0;
    begin(now);
  }

private:
  void begin(Time now) {
    begun_ = now;
    events_ = bytes_ = 0;
    in_flight_ = {};
  }

  Time begun_{};
  size_t events_ = 0, bytes_ = 0;
  uint64_t answered_ = 0; /* n_produce at the end of the last window */
  std::chrono::nanoseconds in_flight_{0};
  int in_a_row_ = 0;
};

/* How many producers the sinks of a process may have beyond the first of each: every one of them connects to every
 * broker. Any thread. */
class KafkaExtraProducers {
public:
  static constexpr size_t most = 64;
  bool take(size_t n) {
    size_t taken = taken_;
    while (taken + n <= most)
      if (taken_.compare_exchange_weak(taken, taken + n))
        return true;
    return false;
  }
  void give_back(size_t n) { taken_ -= n; }

private:
  std::atomic<size_t> taken_{0};
};

}  // namespace outbox
