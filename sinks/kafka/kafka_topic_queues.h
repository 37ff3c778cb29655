/*
 * kafka_topic_queues.h: events that wait in the sink because their topic takes only few at a time (kafka_topics.h),
 * in order per topic. Events of other topics can pass them; later events of their own keys cannot.
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

class KafkaTopicQueues {
public:
  struct Event {
    KafkaTicket of;
    Record record;
  };

  bool empty() const { return size_ == 0; }
  size_t size() const { return size_; }
  bool has_topic(const std::string &topic) const { return size_ > 0 && topics_.count(topic) > 0; }
  bool has_key(uint64_t key_hash) const { return size_ > 0 && keys_.count(key_hash) > 0; }

  void add(Event event) {
    if (event.of.key_hash != 0)
      keys_[event.of.key_hash]++;
    std::deque<Event> &queue = topics_[event.record.topic];
    queue.push_back(std::move(event));
    size_++;
  }

  /* For each topic, calls `take` for its first event and removes the event if it returns true, until it returns
   * false. */
  template <class Take> void each_topic(const Take &take) {
    for (auto at = topics_.begin(); at != topics_.end();) {
      std::deque<Event> &queue = at->second;
      while (!queue.empty() && take(queue.front())) {
        forget_key(queue.front().of.key_hash);
        queue.pop_front();
        size_--;
      }
      at = queue.empty() ? topics_.erase(at) : std::next(at);
    }
  }

  /* Removes and returns the events of a key, or all events with `everything`. */
  std::vector<Completion> release(uint64_t key_hash, bool everything, const char *why) {
    std::vector<Completion> released;
    if (!everything && !has_key(key_hash))
      return released;
    for (auto &[topic, queue] : topics_)
      std::erase_if(queue, [&](const Event &event) {
        if (!everything && event.of.key_hash != key_hash)
          return false;
        released.push_back({{Outcome::Returned, why}, event.of.ticket, event.of.key_hash});
        return true;
      });
    for (const Completion &each : released)
      forget_key(each.key_hash);
    std::erase_if(topics_, [](const auto &each) { return each.second.empty(); });
    size_ -= released.size();
    return released;
  }

private:
  void forget_key(uint64_t key_hash) {
    if (auto at = keys_.find(key_hash); at != keys_.end() && --at->second == 0)
      keys_.erase(at);
  }

  std::map<std::string, std::deque<Event>> topics_;
  std::unordered_map<uint64_t, size_t> keys_;
  size_t size_ = 0;
};

}  // namespace outbox
