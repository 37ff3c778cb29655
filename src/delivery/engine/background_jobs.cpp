/*
 * background_jobs.cpp: one thread per job. Threads that still run when the object is destroyed are detached, so
 * that the end of a worker does not wait for the network.
 */
#include "delivery/engine/background_jobs.h"

#include <condition_variable>
#include <mutex>
#include <system_error>

#include "delivery/base/thread.h"

namespace outbox {

struct BackgroundJobs::State {
  std::mutex mutex;
  std::condition_variable changed;
  size_t running = 0;
};

BackgroundJobs::BackgroundJobs() : state_(std::make_shared<State>()) {}

BackgroundJobs::~BackgroundJobs() {
  for (Job &job : jobs_)
    job.thread.detach();
}

void BackgroundJobs::run(std::function<void()> body) {
  join_done();
  auto done = std::make_shared<bool>(false);
  auto state = state_;
  jobs_.push_back({{}, done});
  {
    std::lock_guard lock(state_->mutex);
    state_->running++;
  }
  try {
    jobs_.back().thread = start_thread([state, done, body = std::move(body)]() mutable {
      or_out_of_memory([&] {
        body();
        body = nullptr; /* destroy what the body owns on this thread */
      });
      std::lock_guard lock(state->mutex);
      *done = true;
      state->running--;
      state->changed.notify_all();
    });
  } catch (...) {
    jobs_.pop_back();
    std::lock_guard lock(state->mutex);
    state->running--;
    throw;
  }
}

void BackgroundJobs::destroy(std::shared_ptr<void> dead) noexcept {
  try {
    run([dead = std::move(dead)]() mutable { dead.reset(); });
  } catch (...) { /* no thread or no memory: it was destroyed on this thread */
  }
}

void BackgroundJobs::join_done() {
  for (auto job = jobs_.begin(); job != jobs_.end();) {
    {
      std::lock_guard lock(state_->mutex);
      if (!*job->done) {
        ++job;
        continue;
      }
    }
    job->thread.join();
    job = jobs_.erase(job);
  }
}

bool BackgroundJobs::finish(std::chrono::steady_clock::time_point deadline) {
  bool all_done;
  {
    std::unique_lock lock(state_->mutex);
    all_done = state_->changed.wait_until(lock, deadline, [this] { return state_->running == 0; });
  }
  join_done();
  return all_done;
}

}  // namespace outbox
