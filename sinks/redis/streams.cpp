/*
 * streams.cpp: an event that tries a stream puts off the next try by a whole pause, whatever becomes of it: its
 * connection may be lost before an answer.
 */
#include "streams.h"

#include <algorithm>

namespace outbox::redis {

const std::string *Streams::problem(std::string_view name, Time now) {
  auto at = refused_.find(name);
  if (at == refused_.end())
    return nullptr;
  Refused &stream = at->second;
  stream.used = now;
  if (now < stream.until)
    return &stream.problem;
  stream.tried = true;
  stream.until = now + stream.pause;
  return nullptr;
}

bool Streams::accepted(std::string_view name) {
  auto at = refused_.find(name);
  if (at == refused_.end())
    return false;
  refused_.erase(at);
  return true;
}

/* Of the events that were in flight together only the first counts. */
bool Streams::refused(const std::string &name, std::string problem, Time now) {
  auto [at, added] = refused_.try_emplace(name);
  Refused &stream = at->second;
  stream.problem = std::move(problem);
  if (!added && !stream.tried)
    return false;
  if (added && refused_.size() == 1)
    look_at_ = now + forget_after;
  if (added)
    stream.used = now;
  stream.tried = false;
  stream.pause = added ? first_pause : std::min(stream.pause * 2, longest_pause);
  stream.until = now + stream.pause;
  return added;
}

/* At `until` the first of them tries. */
Streams::Duration Streams::wait(std::string_view name, Time now) {
  auto at = refused_.find(name);
  Time due = at == refused_.end() ? now : at->second.until;
  last_wait_ = std::max({now, due, last_wait_ + wait_spacing});
  return std::chrono::ceil<Duration>(last_wait_ - now);
}

bool Streams::forget_unused(Time now) {
  if (now < look_at())
    return false;
  look_at_ = Time::max();
  size_t forgotten =
      std::erase_if(refused_, [now](const auto &each) { return each.second.used + forget_after <= now; });
  for (const auto &[name, stream] : refused_)
    look_at_ = std::min(look_at_, stream.used + forget_after);
  return forgotten > 0;
}

std::string Streams::summary() const {
  if (refused_.empty())
    return {};
  const std::string &problem = refused_.begin()->second.problem;
  return refused_.size() == 1 ? problem
                              : problem + "; " + std::to_string(refused_.size() - 1) + " more cannot be written";
}

}  // namespace outbox::redis
