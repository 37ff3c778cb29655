/*
 * kafka_slots.h: the events that librdkafka holds. A message's opaque contains a slot's index and generation, so
 * that a late ending cannot acknowledge another event.
 */
#pragma once

#include <algorithm>
#include <chrono>
#include <string>
#include <vector>

#include "delivery/engine/sink.h"
#include "kafka_producer.h"

namespace outbox {

/* What the sink knows of an event apart from its record. */
struct KafkaTicket {
  uint64_t ticket, key_hash;
  int64_t position;
  bool alone; /* no later event of its key is submitted until this one has ended */
};

class KafkaSlots {
public:
  using Time = std::chrono::steady_clock::time_point;

  struct Slot {
    uint64_t ticket = 0;
    uint64_t key_hash = 0;
    int64_t position = 0;
    uint32_t generation = 0;
    uint32_t size : 30 = 0; /* of its record, in bytes */
    bool used : 1 = false;
    bool placed : 1 = false; /* the event's options name its partition */
    KafkaProducer::Topic *topic = nullptr;
    Time since{};
  };

  /* Returns the opaque for the message. `alone`: no later event of its key is produced until this one has ended. */
  uint64_t take(const KafkaTicket &event, KafkaProducer::Topic *topic, const Record &record, bool alone, Time now) {
    if (free_.empty()) {
      free_.push_back(static_cast<uint32_t>(slots_.size()));
      slots_.emplace_back();
    }
    uint32_t index = free_.back();
    free_.pop_back();
    Slot &slot = slots_[index];
    slot.ticket = event.ticket;
    slot.key_hash = event.key_hash;
    slot.position = event.position;
    slot.generation++;
    slot.used = true;
    slot.placed = record.partition >= 0;
    slot.size = static_cast<uint32_t>(std::min<size_t>(record.size(), largest));
    bytes_ += slot.size;
    slot.topic = topic;
    slot.since = now;
    used_++;
    if (topic)
      topic->in_use++;
    return static_cast<uint64_t>(slot.generation) << 32 | (alone ? KafkaProducer::alone : 0) | index;
  }

  /* Frees the slot and copies it to `out`. Returns false if the event has been abandoned. */
  bool give(uint64_t opaque, Slot &out) {
    uint32_t index = static_cast<uint32_t>(opaque & ~KafkaProducer::alone);
    if (index >= slots_.size() || !slots_[index].used || slots_[index].generation != opaque >> 32)
      return false;
    out = slots_[index];
    slots_[index].used = false;
    if (out.topic)
      out.topic->in_use--;
    bytes_ -= out.size;
    free_.push_back(index);
    used_--;
    return true;
  }

  size_t used() const { return used_; }
  /* Of their records. */
  size_t bytes() const { return bytes_; }

  /* The event that has been in flight longest; null if there is none. Reads all slots. */
  const Slot *oldest() const {
    const Slot *oldest = nullptr;
    for (const Slot &slot : slots_)
      if (slot.used && (!oldest || slot.since < oldest->since))
        oldest = &slot;
    return oldest;
  }

  /* Nobody knows which of them a broker has stored. */
  std::vector<Completion> release_all(std::string_view why) {
    std::vector<Completion> released;
    for (uint32_t index = 0; index < slots_.size(); index++)
      if (Slot slot; slots_[index].used && give(static_cast<uint64_t>(slots_[index].generation) << 32 | index, slot))
        released.push_back({{.outcome = Outcome::Returned, .error = std::string(why), .unanswered = true},
                            slot.ticket,
                            slot.key_hash});
    return released;
  }

private:
  static constexpr size_t largest = (1u << 30) - 1;
  std::vector<Slot> slots_;
  std::vector<uint32_t> free_;
  size_t used_ = 0, bytes_ = 0;
};

}  // namespace outbox
