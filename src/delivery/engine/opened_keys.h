/*
 * opened_keys.h: opens the private keys of clients that a password protects. Deriving the key from its password takes
 * up to a second, and the caller's thread serves all sinks, so it is done on a background thread: one key at a time,
 * as an owner of many sinks may not take all processors.
 */
#pragma once

#include <array>
#include <chrono>
#include <future>
#include <map>
#include <string>

#include "delivery/engine/background_jobs.h"
#include "delivery/options/options.h"

namespace outbox {

class OpenedKeys {
public:
  /* Puts the opened key in the place of ssl_key_pem, and removes ssl_key_password. False: it is not yet open, so ask
   * again. Throws BadInput if it cannot be opened, and std::system_error if no thread can be started. */
  bool open(Options &mapping, BackgroundJobs &jobs);
  /* Call it now and then, as nothing else may ask for a key any more. */
  void forget_unfetched(std::chrono::steady_clock::time_point now);

private:
  using Clock = std::chrono::steady_clock;
  struct One {
    std::future<std::string> key;
    Clock::time_point asked_at;
    bool is_open() const { return key.wait_for(std::chrono::seconds(0)) == std::future_status::ready; }
  };

  std::map<std::array<std::string, 3>, One> keys_; /* by key, password and certificate; until they are fetched */
};

}  // namespace outbox
