/*
 * http_batch.h: the messages of a request. When one of them is to blame for what happened to all, it is found by
 * halving: the first half is sent, and when that has ended, what is behind it. Both may have messages of the same
 * key.
 */
#pragma once

#include <cstdint>
#include <list>
#include <optional>
#include <unordered_set>
#include <vector>

#include "delivery/http/http_answer.h"
#include "delivery/http/http_message.h"

namespace outbox {

struct HttpBatch {
  using Serials = std::vector<uint64_t>; /* of messages, in the SendQueue */

  Serials serials;
  HttpContent content;
  size_t weight = 0;
  bool alone = false; /* gets no further message */

  void add(uint64_t serial, HttpMessage message);
  /* How many of its messages end with this verdict, from the first on; the others are to be sent again. */
  size_t ending(const HttpVerdict &verdict) const;
  /* The messages from that one on are moved behind it, in two parts. */
  void halve(size_t from);
  /* Takes the messages of these keys, none of which is 0, out of what is behind it. */
  Serials take_behind(const std::unordered_set<uint64_t> &keys);
  Serials take_all_behind();
  /* The next part of what is behind it, and behind that the others. */
  std::optional<HttpBatch> next_part();

private:
  Serials take(const std::unordered_set<uint64_t> &keys);

  std::list<HttpBatch> behind_;
};

}  // namespace outbox
