/*
 * background_jobs.h: runs jobs that may wait for a resolver or a broker on threads of their own, because the main
 * thread must not wait: destroying sinks, and probes. One owner thread calls all methods.
 */
#pragma once

#include <chrono>
#include <functional>
#include <list>
#include <memory>
#include <thread>

namespace outbox {

class BackgroundJobs {
public:
  BackgroundJobs();
  ~BackgroundJobs();
  /* Destroys an object on a background thread. If no thread can be started, destroys it in the caller's thread. */
  void destroy(std::shared_ptr<void> dead) noexcept;
  /* Runs `body` on a new thread. Throws std::system_error if no thread can be started. */
  void run(std::function<void()> body);
  /* Waits until `deadline` at most. Returns true if all jobs have ended; threads that still run are detached later.
   */
  bool finish(std::chrono::steady_clock::time_point deadline);

private:
  struct State;
  struct Job {
    std::thread thread;
    std::shared_ptr<bool> done; /* guarded by the state's mutex */
  };
  void join_done();

  std::shared_ptr<State> state_; /* shared with threads that may outlive this object */
  std::list<Job> jobs_;
};

}  // namespace outbox
