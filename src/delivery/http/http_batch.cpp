/* http_batch.cpp: divides the messages of a request. */
#include "delivery/http/http_batch.h"

#include <utility>

namespace outbox {

void HttpBatch::add(uint64_t serial, HttpMessage message) {
  weight += message.weight;
  serials.push_back(serial);
  content.messages.push_back(std::move(message));
}

size_t HttpBatch::ending(const HttpVerdict &verdict) const {
  if (serials.size() == 1)
    return 1;
  if (verdict.blames_one)
    return 0;
  return verdict.each.empty() && verdict.outcome == Outcome::RetryBlameSink ? 1 : serials.size();
}

void HttpBatch::halve(size_t from) {
  const size_t middle = from + (serials.size() - from + 1) / 2;
  std::list<HttpBatch> parts;
  for (auto [begin, end] : {std::pair(from, middle), std::pair(middle, serials.size())}) {
    if (begin == end)
      continue;
    HttpBatch &part = parts.emplace_back();
    part.alone = true;
    for (size_t i = begin; i < end; i++)
      part.add(serials[i], std::move(content.messages[i]));
  }
  behind_.splice(behind_.begin(), parts);
}

HttpBatch::Serials HttpBatch::take(const std::unordered_set<uint64_t> &keys) {
  std::vector<HttpMessage> &messages = content.messages;
  Serials taken;
  size_t kept = 0;
  for (size_t i = 0; i < messages.size(); i++) {
    if (keys.contains(messages[i].key_hash)) {
      taken.push_back(serials[i]);
      continue;
    }
    if (kept < i) {
      messages[kept] = std::move(messages[i]);
      serials[kept] = serials[i];
    }
    kept++;
  }
  messages.resize(kept);
  serials.resize(kept);
  return taken;
}

HttpBatch::Serials HttpBatch::take_behind(const std::unordered_set<uint64_t> &keys) {
  Serials all;
  for (auto part = behind_.begin(); !keys.empty() && part != behind_.end();) {
    const Serials taken = part->take(keys);
    all.insert(all.end(), taken.begin(), taken.end());
    part = part->serials.empty() ? behind_.erase(part) : std::next(part);
  }
  return all;
}

HttpBatch::Serials HttpBatch::take_all_behind() {
  Serials all;
  for (const HttpBatch &part : behind_)
    all.insert(all.end(), part.serials.begin(), part.serials.end());
  behind_.clear();
  return all;
}

std::optional<HttpBatch> HttpBatch::next_part() {
  if (behind_.empty())
    return std::nullopt;
  HttpBatch part = std::move(behind_.front());
  behind_.pop_front();
  part.behind_.swap(behind_);
  return part;
}

}  // namespace outbox
