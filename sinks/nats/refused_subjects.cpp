/*
 * refused_subjects.cpp: a stream that is full takes single messages whenever a consumer makes room. So a subject that
 * is refused soon after it was stored begins with twice its former pause.
 */
#include "refused_subjects.h"

#include <algorithm>

namespace outbox::nats {

RefusedSubjects::Answer RefusedSubjects::look_up(const std::string &name, Time now) {
  auto at = subjects_.find(name);
  if (at == subjects_.end())
    return Answer::Send;
  Subject &subject = at->second;
  subject.used = now;
  if (subject.tried)
    return Answer::Wait;
  if (now < subject.until)
    return Answer::Refused;
  subject.tried = true;
  return Answer::Try;
}

bool RefusedSubjects::refused(const std::string &name, const std::string &why, bool tried, Time now) {
  auto at = subjects_.find(name);
  const bool is_new = at == subjects_.end();
  if (is_new) {
    if (subjects_.size() >= most_remembered)
      return false;
    if (subjects_.empty())
      look_at_ = now + forget_after;
    at = subjects_.emplace(name, Subject()).first;
    if (now - stored_at_ < longest_pause)
      at->second.pause = last_pause_;
  } else if (!tried) {
    return false; /* one of many that were in flight together */
  }
  Subject &subject = at->second;
  subject.why = why;
  subject.tried = false;
  subject.pause = std::clamp(subject.pause * 2, first_pause, longest_pause);
  subject.until = now + subject.pause;
  subject.used = now;
  return is_new;
}

bool RefusedSubjects::stored(const std::string &name, Time now) {
  auto at = subjects_.find(name);
  if (at == subjects_.end())
    return false;
  last_pause_ = at->second.pause;
  stored_at_ = now;
  last_wait_ = {};
  subjects_.clear();
  return true;
}

/* At `until` the first of them tries the subject. */
RefusedSubjects::Duration RefusedSubjects::wait(const std::string &name, Time now) {
  auto at = subjects_.find(name);
  Time due = at == subjects_.end() ? now + longest_pause : at->second.until;
  last_wait_ = std::max({now, due, last_wait_ + wait_spacing});
  return std::chrono::ceil<Duration>(last_wait_ - now);
}

std::string RefusedSubjects::why(const std::string &name) const {
  auto at = subjects_.find(name);
  return at == subjects_.end() ? std::string() : at->second.why;
}

void RefusedSubjects::forget_try(const std::string &name) {
  if (auto at = subjects_.find(name); at != subjects_.end())
    at->second.tried = false;
}

void RefusedSubjects::forget_tries() {
  for (auto &[name, subject] : subjects_)
    subject.tried = false;
}

bool RefusedSubjects::forget_unused(Time now) {
  if (subjects_.empty() || now < look_at_)
    return false;
  look_at_ = Time::max();
  size_t forgotten = std::erase_if(subjects_, [&](const auto &each) {
    const Subject &subject = each.second;
    if (!subject.tried && subject.used + forget_after <= now)
      return true;
    look_at_ = std::min(look_at_, std::max(now, subject.used) + forget_after);
    return false;
  });
  return forgotten > 0;
}

std::string RefusedSubjects::summary() const {
  if (subjects_.empty())
    return {};
  return subjects_.begin()->second.why +
         (subjects_.size() == 1 ? "; its events wait" : "; its events wait, and those of other subjects");
}

}  // namespace outbox::nats
