/*
 * kafka_queues.h: events that wait in the sink, in order within each queue: because their topic takes only few at a
 * time (kafka_topics.h), in a queue per topic, or because their lane takes none now. Events of other queues can pass
 * them; later events of their own keys cannot.
 */
#pragma once

#include <deque>
#include <map>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "delivery/engine/sink.h"
#include "delivery/formats/record.h"
#include "kafka_slots.h"

namespace outbox {

class KafkaQueues {
public:
  struct Event {
    KafkaTicket of;
    Record record;
  };

  bool empty() const { return size_ == 0; }
  size_t size() const { return size_; }
  size_t bytes() const { return bytes_; }
  bool has(const std::string &queue) const { return size_ > 0 && queues_.count(queue) > 0; }
  bool has_key(uint64_t key_hash) const { return size_ > 0 && keys_.count(key_hash) > 0; }

  void add(const std::string &queue, Event event) {
    if (event.of.key_hash != 0)
      keys_[event.of.key_hash]++;
    bytes_ += event.record.size();
    queues_[queue].push_back(std::move(event));
    size_++;
  }

  /* For each queue, calls `take` for its first event and removes the event if it returns true, until it returns
   * false. */
  template <class Take> void each_queue(const Take &take) {
    for (auto at = queues_.begin(); at != queues_.end();) {
      std::deque<Event> &queue = at->second;
      while (!queue.empty() && take(queue.front())) {
        forget(queue.front());
        queue.pop_front();
      }
      at = queue.empty() ? queues_.erase(at) : std::next(at);
    }
  }

  /* Removes and returns the events of a key, or all events with `everything`. */
  std::vector<Completion> release(uint64_t key_hash, bool everything, const char *why) {
    std::vector<Completion> released;
    if (!everything && !has_key(key_hash))
      return released;
    for (auto &[name, queue] : queues_)
      std::erase_if(queue, [&](const Event &event) {
        if (!everything && event.of.key_hash != key_hash)
          return false;
        released.push_back({{Outcome::Returned, why}, event.of.ticket, event.of.key_hash});
        forget(event);
        return true;
      });
    std::erase_if(queues_, [](const auto &each) { return each.second.empty(); });
    return released;
  }

private:
  void forget(const Event &event) {
    if (auto at = keys_.find(event.of.key_hash); at != keys_.end() && --at->second == 0)
      keys_.erase(at);
    bytes_ -= event.record.size();
    size_--;
  }

  std::map<std::string, std::deque<Event>> queues_;
  std::unordered_map<uint64_t, size_t> keys_;
  size_t size_ = 0, bytes_ = 0;
};

}  // namespace outbox
