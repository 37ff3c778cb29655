/*
 * keyed_queue.h: keeps order per key while many keys run at once.
 *
 * Of each key at most one item runs; the others of that key wait behind it. Key 0 means "no order": its items run
 * side by side. Pure: no thread, no clock, no lock.
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
      auto [lane, fresh] = lanes_.try_emplace(key);
      if (!fresh) {
        lane->second.followers.push_back(std::move(item));
        ++queued_;
        return;
      }
    }
    ready_.emplace_back(key, std::move(item));
    ++queued_;
  }

  /* The next item that may run now; its key is taken until finish() or fail(). */
  std::optional<Item> start() {
    if (running_ >= concurrency_ || ready_.empty())
      return std::nullopt;
    auto [key, item] = std::move(ready_.front());
    ready_.pop_front();
    if (key != 0)
      lanes_.at(key).running = true;
    --queued_;
    ++running_;
    return std::move(item);
  }

  /* A running item of the key ended well: the next of its key may run. */
  void finish(uint64_t key) {
    --running_;
    auto lane = lanes_.find(key);
    if (lane == lanes_.end())
      return;
    lane->second.running = false;
    if (lane->second.followers.empty()) {
      lanes_.erase(lane);
      return;
    }
    ready_.emplace_back(key, std::move(lane->second.followers.front()));
    lane->second.followers.pop_front();
  }

  /* A running item of the key failed: nothing of its key may overtake it, so its followers are handed back. */
  std::vector<Item> fail(uint64_t key) {
    --running_;
    std::vector<Item> followers;
    if (auto lane = lanes_.find(key); lane != lanes_.end()) {
      take(lane->second.followers, followers);
      lanes_.erase(lane);
    }
    return followers;
  }

  /* Hands back everything that is not running, each key in its order. */
  std::vector<Item> drain() {
    std::vector<Item> items;
    items.reserve(ready_.size());
    for (auto &[key, item] : ready_)
      items.push_back(std::move(item));
    ready_.clear();
    for (auto lane = lanes_.begin(); lane != lanes_.end();) {
      take(lane->second.followers, items);
      lane = lane->second.running ? std::next(lane) : lanes_.erase(lane);
    }
    queued_ = 0;
    return items;
  }

  bool can_start() const { return running_ < concurrency_ && !ready_.empty(); }
  size_t queued() const { return queued_; }
  size_t running() const { return running_; }

private:
  struct Lane {
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
  std::unordered_map<uint64_t, Lane> lanes_;
};

}  // namespace outbox
