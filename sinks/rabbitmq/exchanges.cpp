/* exchanges.cpp: an entry stays while its exchange is missing and has events, so that its pause grows. */
#include "exchanges.h"

#include <algorithm>

namespace outbox::rabbitmq {

Exchanges::Answer Exchanges::look_up(const std::string &name, Time now) {
  auto at = exchanges_.find(name);
  if (at == exchanges_.end()) {
    if (exchanges_.size() >= most_remembered)
      forget_answers();
    at = exchanges_.emplace(name, Exchange()).first;
  }
  Exchange &exchange = at->second;
  exchange.used = now;
  if (exchange.there)
    return Answer::There;
  if (exchange.asked)
    return Answer::Wait;
  if (exchange.missing && now < exchange.until)
    return Answer::Missing;
  exchange.asked = true;
  return Answer::Ask;
}

bool Exchanges::found(const std::string &name) {
  Exchange &exchange = exchanges_[name];
  bool was_missing = exchange.missing;
  n_missing_ -= was_missing;
  exchange = {true, false, false, Duration(0), {}, exchange.used};
  return was_missing;
}

bool Exchanges::missing(const std::string &name, Time now) {
  Exchange &exchange = exchanges_[name];
  bool was_missing = exchange.missing;
  exchange.there = exchange.asked = false;
  exchange.missing = true;
  exchange.pause = was_missing ? std::min(exchange.pause * 2, longest_pause) : first_pause;
  exchange.until = now + exchange.pause;
  if (n_missing_ == 0)
    look_at_ = now + forget_after;
  n_missing_ += !was_missing;
  return !was_missing;
}

/* At `until` the first of them makes the sink ask again. */
Exchanges::Duration Exchanges::wait(const std::string &name, Time now) {
  auto at = exchanges_.find(name);
  Time due = at == exchanges_.end() ? now : at->second.until;
  last_wait_ = std::max({now, due, last_wait_ + wait_spacing});
  return std::chrono::ceil<Duration>(last_wait_ - now);
}

void Exchanges::forget_answers() {
  std::erase_if(exchanges_, [](const auto &each) { return !each.second.missing; });
  for (auto &[name, exchange] : exchanges_)
    exchange.asked = false;
}

bool Exchanges::forget_unused(Time now) {
  if (n_missing_ == 0 || now < look_at_)
    return false;
  look_at_ = Time::max();
  size_t forgotten = std::erase_if(exchanges_, [&](const auto &each) {
    const Exchange &exchange = each.second;
    if (!exchange.missing)
      return false;
    if (!exchange.asked && exchange.used + forget_after <= now)
      return true;
    look_at_ = std::min(look_at_, std::max(now, exchange.used) + forget_after);
    return false;
  });
  n_missing_ -= forgotten;
  return forgotten > 0;
}

}  // namespace outbox::rabbitmq
