/*
 * refused_targets.cpp: messages that were in flight together with the first refused one end one after the other;
 * only those that look_up() has allowed say something about the target as it is now. An acknowledgement that comes
 * late shows that the target does take messages, so the next pause is short; it does not end this one.
 */
#include "delivery/engine/refused_targets.h"

#include <algorithm>

namespace outbox {

RefusedTargets::Answer RefusedTargets::look_up(const std::string &name, Time now) {
  auto at = targets_.find(name);
  if (at == targets_.end())
    return Answer::Send;
  Target &target = at->second;
  target.used = now;
  if (target.state == State::Paused && now >= target.until) {
    target.state = State::Tried;
    target.in_flight++;
    return Answer::Try;
  }
  if (target.state == State::Passing && target.in_flight < target.window) {
    target.in_flight++;
    return Answer::Few;
  }
  return target.state != State::Paused || target.pause < limits_.first ? Answer::Wait : Answer::Defer;
}

bool RefusedTargets::passed(const std::string &name, bool counted, Time now) {
  auto at = targets_.find(name);
  if (at == targets_.end())
    return false;
  Target &target = at->second;
  const bool is_new = target.passed == Time() || now - target.passed >= limits_.longest;
  target.passed = now;
  if (!counted) {
    target.pause = std::min(target.pause, limits_.shortest);
    target.until = std::min(target.until, now + limits_.shortest);
    return false;
  }
  uncount(target);
  if (target.state == State::Tried) {
    target.state = State::Passing;
    target.window = 1;
    target.passing_since = target.called = now;
  }
  target.window += target.state == State::Passing;
  const bool all = is_new && target.state == State::Passing && now - all_wanted_at_ >= limits_.settled;
  if (all) {
    all_wanted_at_ = now;
    last_wait_ = {};
    for (auto &[other, each] : targets_) {
      each.deferred = false;
      each.until = std::min(each.until, now);
    }
  }
  look_later(target);
  return all;
}

void RefusedTargets::pause(Target &target, Duration pause, Time now) {
  target.state = State::Paused;
  target.pause = std::min(pause, limits_.longest);
  target.until = now + target.pause;
}

bool RefusedTargets::refused(const std::string &name, std::string why, ob_reason reason, bool counted, Time now) {
  auto at = targets_.find(name);
  const bool is_new = at == targets_.end();
  if (is_new) {
    if (targets_.size() >= limits_.most_remembered)
      return false;
    if (targets_.empty())
      look_at_ = Time::max();
    at = targets_.emplace(name, Target()).first;
    at->second.used = now;
    pause(at->second, limits_.first, now);
  }
  Target &target = at->second;
  target.why = std::move(why);
  target.reason = reason;
  if (counted) {
    uncount(target);
    if (target.state == State::Tried)
      pause(target, 2 * target.pause, now);
    else if (target.state == State::Passing)
      pause(target, limits_.shortest, now);
  }
  look_later(target);
  return is_new;
}

void RefusedTargets::ended(const std::string &name, bool counted) {
  auto at = targets_.find(name);
  if (at == targets_.end() || !counted)
    return;
  uncount(at->second);
  if (at->second.state == State::Tried)
    at->second.state = State::Paused; /* its pause is over: the next message tries */
  look_later(at->second);
}

void RefusedTargets::forget_in_flight() {
  for (auto &[name, target] : targets_) {
    target.in_flight = 0;
    if (target.state == State::Tried)
      target.state = State::Paused;
    look_later(target);
  }
}

/* At `until` the first of them tries the target. */
RefusedTargets::Duration RefusedTargets::wait(const std::string &name, Time now, bool counted) {
  auto at = targets_.find(name);
  Time due = now + limits_.longest;
  if (at != targets_.end()) {
    due = std::max(at->second.until, now + limits_.shortest); /* of one that is tried: when its try has ended */
    at->second.deferred = true;
    look_later(at->second);
  }
  if (counted)
    return std::chrono::ceil<Duration>(std::max(due + limits_.shortest, last_wait_) - now);
  last_wait_ = std::max({now, due, last_wait_ + limits_.wait_spacing});
  return std::chrono::ceil<Duration>(last_wait_ - now);
}

std::string RefusedTargets::why(const std::string &name) const {
  auto at = targets_.find(name);
  return at == targets_.end() ? std::string() : at->second.why;
}

ob_reason RefusedTargets::reason(const std::string &name) const {
  auto at = targets_.find(name);
  return at == targets_.end() ? OB_REASON_NONE : at->second.reason;
}

RefusedTargets::Time RefusedTargets::ready_at(const std::string &name) const {
  auto at = targets_.find(name);
  if (at == targets_.end())
    return Time::min();
  return at->second.state == State::Paused ? at->second.until : Time::max();
}

RefusedTargets::Time RefusedTargets::next_look(const Target &target) const {
  if (target.state == State::Tried)
    return Time::max(); /* its message ends */
  if (target.state == State::Paused)
    return std::max(target.used, target.until) + limits_.forget_after();
  const Time settled = target.passing_since + limits_.settled;
  return target.deferred && target.in_flight == 0 ? std::min(settled, target.called + limits_.call) : settled;
}

RefusedTargets::News RefusedTargets::look(Time now) {
  constexpr size_t few = 8;
  News news;
  if (!any() || now < look_at_)
    return news;
  look_at_ = Time::max();
  for (auto at = targets_.begin(); at != targets_.end();) {
    Target &target = at->second;
    bool over = false;
    if (next_look(target) <= now) {
      const bool passes = target.state == State::Passing;
      over = !passes || now - target.passing_since >= limits_.settled;
      if (passes)
        news.wanted.push_back(at->first);
      if (passes && over)
        news.healthy.push_back(at->first);
      news.forgotten |= !passes;
      target.called = now;
      target.deferred = false;
    }
    if (!over)
      look_later(target);
    at = over ? targets_.erase(at) : std::next(at);
  }
  news.all_wanted = news.wanted.size() > few;
  return news;
}

std::string RefusedTargets::summary() const {
  if (targets_.empty())
    return {};
  return targets_.begin()->second.why +
         (targets_.size() == 1 ? "; its events wait" : "; its events wait, and those of others");
}

}  // namespace outbox
