/*
 * keyed_queue.h: a queue that keeps order per key while many keys run at once.
 *
 * At most one item of a key runs; the other items of the key wait behind it. Items with key 0 are unordered and run
 * side by side. No thread, clock or lock: the caller locks.
 */
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <unordered_map>
#include <utility>
#include <vector>

namespace outbox {

template <typename Item> class KeyedQueue {
public:
  explicit KeyedQueue(size_t concurrency) : concurrency_(concurrency) {}

  void push(uint64_t key, Item item) {
    if (key != 0) {
      auto [at, added] = keys_.try_emplace(key);
      if (!added) {
        at->second.followers.push_back(std::move(item));
        ++queued_;
        return;
      }
    }
    ready_.emplace_back(key, std::move(item));
    ++queued_;
  }

  /* Returns the next item that may run. Its key is occupied until finish() or fail(). */
  std::optional<Item> start() {
    if (running_ >= concurrency_ || ready_.empty())
      return std::nullopt;
    auto [key, item] = std::move(ready_.front());
    ready_.pop_front();
    if (key != 0)
      keys_.at(key).running = true;
    --queued_;
    ++running_;
    return std::move(item);
  }

  /* A running item of the key has succeeded: the next one may run. */
  void finish(uint64_t key) {
    --running_;
    auto at = keys_.find(key);
    if (at == keys_.end())
      return;
    at->second.running = false;
    if (at->second.followers.empty()) {
      keys_.erase(at);
      return;
    }
    ready_.emplace_back(key, std::move(at->second.followers.front()));
    at->second.followers.pop_front();
  }

  /* A running item of the key has failed: returns its followers, because none may overtake it. */
  std::vector<Item> fail(uint64_t key) {
    --running_;
    std::vector<Item> followers;
    if (auto at = keys_.find(key); at != keys_.end()) {
      take(at->second.followers, followers);
      keys_.erase(at);
    }
    return followers;
  }

  /* Removes and returns all items that are not running, each key in its order. */
  std::vector<Item> drain() {
    std::vector<Item> items;
    items.reserve(ready_.size());
    for (auto &[key, item] : ready_)
      items.push_back(std::move(item));
    ready_.clear();
    for (auto at = keys_.begin(); at != keys_.end();) {
      take(at->second.followers, items);
      at = at->second.running ? std::next(at) : keys_.erase(at);
    }
    queued_ = 0;
    return items;
  }

  bool can_start() const { return running_ < concurrency_ && !ready_.empty(); }
  size_t queued() const { return queued_; }
  size_t running() const { return running_; }

private:
  struct Key {
    bool running = false;
    std::deque<Item> followers;
  };

  void take(std::deque<Item> &from, std::vector<Item> &to) {
    queued_ -= from.size();
    for (Item &item : from)
      to.push_back(std::move(item));
    from.clear();
  }

  size_t concurrency_;
  size_t queued_ = 0;
  size_t running_ = 0;
  std::deque<std::pair<uint64_t, Item>> ready_;
  std::unordered_map<uint64_t, Key> keys_;
};

}  // namespace outbox
