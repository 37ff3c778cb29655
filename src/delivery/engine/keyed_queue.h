/*
 * keyed_queue.h: a queue that keeps order per key while many keys run at once.
 *
 * At most one item of a key runs, or a run of them that the caller keeps in order (start_behind()); the other items
 * of the key wait behind it. Items with key 0 are unordered and run side by side. No thread, clock or lock: the
 * caller locks.
 */
#pragma once

#include <cstddef>
#include <cstdint>
#include <list>
#include <optional>
#include <unordered_map>
#include <utility>

namespace outbox {

template <typename Item> class KeyedQueue {
public:
  /* Items with their keys. */
  using Items = std::list<std::pair<uint64_t, Item>>;

  explicit KeyedQueue(size_t concurrency) : concurrency_(concurrency) {}

  void push(uint64_t key, Item item) {
    Items *into = &ready_;
    if (key != 0)
      if (auto [at, added] = keys_.try_emplace(key); !added)
        into = &at->second.followers;
    into->emplace_back(key, std::move(item));
    ++queued_;
  }

  /* Returns the next item that may run. Its key is occupied until finish() or fail(). */
  std::optional<Item> start() {
    if (running_ >= concurrency_ || ready_.empty())
      return std::nullopt;
    auto [key, item] = std::move(ready_.front());
    ready_.pop_front();
    if (key != 0)
      keys_.find(key)->second.running = 1;
    --queued_;
    ++running_;
    return std::move(item);
  }

  /* The next item of a key of which an item runs, if `takes` it: its end must not come before that of the former. */
  template <class Takes> std::optional<Item> start_behind(uint64_t key, Takes takes) {
    auto at = keys_.find(key);
    if (running_ >= concurrency_ || at == keys_.end() || at->second.running == 0)
      return std::nullopt;
    Items &followers = at->second.followers;
    if (followers.empty() || !takes(followers.front().second))
      return std::nullopt;
    std::optional<Item> item = std::move(followers.front().second);
    followers.pop_front();
    ++at->second.running;
    --queued_;
    ++running_;
    return item;
  }

  /* The first item that may run and for which `is_preferred` holds comes next. Returns how many it has passed. */
  template <class Predicate> size_t prefer(Predicate is_preferred) {
    size_t passed = 0;
    for (auto at = ready_.begin(); at != ready_.end(); ++at, passed++)
      if (is_preferred(at->second)) {
        ready_.splice(ready_.begin(), ready_, at);
        return passed;
      }
    return 0;
  }

  /* A running item of the key has succeeded: when none of the key runs, the next one may. */
  void finish(uint64_t key) noexcept {
    --running_;
    auto at = keys_.find(key);
    if (at == keys_.end() || --at->second.running > 0)
      return;
    if (Items &followers = at->second.followers; followers.empty())
      keys_.erase(at);
    else
      ready_.splice(ready_.end(), followers, followers.begin());
  }

  /* A running item of the key has failed: returns the items behind it, because none may overtake it. The items that
   * run together with it have failed, too: call it for each of them before another item of the key is pushed. */
  Items fail(uint64_t key) noexcept {
    --running_;
    Items followers;
    if (auto at = keys_.find(key); at != keys_.end()) {
      queued_ -= at->second.followers.size();
      followers.swap(at->second.followers);
      keys_.erase(at);
    }
    return followers;
  }

  /* Removes and returns all items that are not running, each key in its order. */
  Items drain() noexcept {
    Items items;
    items.swap(ready_);
    for (auto at = keys_.begin(); at != keys_.end();) {
      items.splice(items.end(), at->second.followers);
      at = at->second.running > 0 ? std::next(at) : keys_.erase(at);
    }
    queued_ = 0;
    return items;
  }

  bool can_start() const { return running_ < concurrency_ && !ready_.empty(); }
  /* Whether any item waits behind one of its key. */
  bool has_followers() const { return queued_ > ready_.size(); }
  size_t queued() const { return queued_; }
  size_t running() const { return running_; }

private:
  struct Key {
    size_t running = 0;
    Items followers;
  };

  size_t concurrency_;
  size_t queued_ = 0;
  size_t running_ = 0;
  Items ready_;
  std::unordered_map<uint64_t, Key> keys_;
};

}  // namespace outbox
