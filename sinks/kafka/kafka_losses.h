/*
 * kafka_losses.h: finds the event at which brokers, or something before them, break the connection. librdkafka sends
 * a batch again as it was, however often, so that event would hold all others of its broker for ever.
 *
 * After some losses with the same oldest event in flight, events are sent one at a time. One that is alone when
 * connections are lost again is a suspect, and its later tries are sent alone. It is to blame if another event was
 * acknowledged since; otherwise the broker may break at every event, and is down.
 */
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

namespace outbox {

class KafkaLosses {
public:
  enum class Suspicion { None, Some, One, Blamed };

  /* Has the producer lost connections since the last call? `so_far`: since it was made. */
  bool has_lost(uint64_t so_far) {
    const bool has = so_far > lost_;
    new_ = has ? so_far - lost_ : 0;
    lost_ = so_far;
    return has;
  }
  /* What these losses show, with so many events in flight; the oldest is that with this ticket and position. */
  Suspicion suspect(size_t in_flight, uint64_t oldest_ticket, int64_t oldest_position) {
    in_a_row_ = oldest_ticket == oldest_ ? in_a_row_ + new_ : new_;
    oldest_ = oldest_ticket;
    if (in_a_row_ < (is_alone() ? suspicious_alone : suspicious))
      return Suspicion::None;
    in_a_row_ = 0;
    if (in_flight > 1) {
      alone_left_ = std::min(in_flight, most_alone);
      return Suspicion::Some;
    }
    alone_left_ = 0;
    if (const Suspect *known = find(oldest_position))
      return known->others_passed ? Suspicion::Blamed : Suspicion::One;
    suspects_[n_suspects_++ % suspects_.size()] = {oldest_position, false};
    return Suspicion::One;
  }
  void producer_replaced() { lost_ = 0; }
  void ended(size_t n) { alone_left_ -= std::min(n, alone_left_); }
  bool is_alone() const { return alone_left_ > 0; }
  void acknowledged() {
    for (size_t i = 0; i < std::min(n_suspects_, suspects_.size()); i++)
      suspects_[i].others_passed = true;
  }
  bool is_suspect(int64_t position) const { return find(position) != nullptr; }
  void send_alone() { alone_left_ = std::max<size_t>(alone_left_, 1); }

private:
  struct Suspect {
    int64_t position;
    bool others_passed; /* since it was first suspected */
  };
  const Suspect *find(int64_t position) const {
    const Suspect *end = suspects_.data() + std::min(n_suspects_, suspects_.size());
    const Suspect *at =
        std::find_if(suspects_.data(), end, [&](const Suspect &each) { return each.position == position; });
    return at == end ? nullptr : at;
  }

  static constexpr uint64_t suspicious = 3, suspicious_alone = 2;
  static constexpr size_t most_alone = 1000;

  uint64_t lost_ = 0, new_ = 0, in_a_row_ = 0, oldest_ = 0;
  size_t alone_left_ = 0;             /* events that are to be sent one at a time */
  std::array<Suspect, 8> suspects_{}; /* the latest */
  size_t n_suspects_ = 0;
};

}  // namespace outbox
