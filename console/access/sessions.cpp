/* sessions.cpp: makes, finds and ends sessions. */
#include "sessions.h"

#include "console/access/secret.h"

namespace console {

std::shared_ptr<Session> Sessions::add() {
  auto session = std::make_shared<Session>(random_name(), random_name());
  const std::lock_guard guard(lock_);
  if (by_name_.size() >= most_)
    return nullptr;
  by_name_[session->name] = {session, Clock::now()};
  return session;
}

std::shared_ptr<Session> Sessions::find(std::string_view name) {
  const std::lock_guard guard(lock_);
  const auto found = by_name_.find(name);
  if (found == by_name_.end() || found->second.used + idle_limit_ < Clock::now())
    return nullptr;
  found->second.used = Clock::now();
  return found->second.session;
}

/* A request that is still at work keeps its session, and its connection, until it ends. */
void Sessions::end(std::string_view name) {
  std::shared_ptr<Session> ended; /* its connection is closed without the lock */
  const std::lock_guard guard(lock_);
  if (const auto found = by_name_.find(name); found != by_name_.end()) {
    ended = std::move(found->second.session);
    by_name_.erase(found);
  }
}

void Sessions::end_idle(Clock::time_point now) {
  std::vector<std::shared_ptr<Session>> ended;
  const std::lock_guard guard(lock_);
  for (auto at = by_name_.begin(); at != by_name_.end();) {
    if (at->second.used + idle_limit_ < now) {
      ended.push_back(std::move(at->second.session));
      at = by_name_.erase(at);
    } else {
      ++at;
    }
  }
}

}  // namespace console
