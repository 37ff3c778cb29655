/*
 * opened_keys.cpp: a sink that was dropped or altered meanwhile does not fetch its key, which is forgotten after a
 * minute.
 */
#include "delivery/engine/opened_keys.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "delivery/options/pem.h"

namespace outbox {

static constexpr std::chrono::minutes KEPT{1};

static std::string open(const std::array<std::string, 3> &id) {
  return open_key({id[0], id[2].empty() ? nullptr : &id[2], &id[1]});
}

void OpenedKeys::forget_unfetched(Clock::time_point now) {
  std::erase_if(keys_, [&](const auto &each) { return each.second.is_open() && each.second.asked_at + KEPT < now; });
}

bool OpenedKeys::open(Options &mapping, BackgroundJobs &jobs) {
  const std::string *key = find_option(mapping, SSL_KEY_PEM), *password = find_option(mapping, SSL_KEY_PASSWORD),
                    *certificate = find_option(mapping, SSL_CERTIFICATE_PEM);
  if (!key || !password)
    return true;
  const std::array<std::string, 3> id{*key, *password, certificate ? *certificate : ""};
  const auto found = keys_.find(id);
  if (found == keys_.end()) {
    if (std::any_of(keys_.begin(), keys_.end(), [](const auto &each) { return !each.second.is_open(); }))
      return false;
    auto job = std::make_shared<std::packaged_task<std::string()>>([id] { return outbox::open(id); });
    jobs.run([job] { (*job)(); }); /* first, as it throws if there is no thread: the next call then tries again */
    keys_.emplace(id, One{job->get_future(), Clock::now()});
    return false;
  }
  if (!found->second.is_open())
    return false;
  std::future<std::string> opened = std::move(found->second.key);
  keys_.erase(found);
  mapping[SSL_KEY_PEM] = opened.get();
  mapping.erase(SSL_KEY_PASSWORD);
  return true;
}

}  // namespace outbox
