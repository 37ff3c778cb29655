/*
 * background_jobs.h: work that may wait for a resolver or a broker, which the main thread must not, on threads of its
 * own that end by themselves: destroying sinks, and probing.
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
  /* Of what may take its time to be destroyed. Where there is no thread for it, the caller waits. */
  void destroy(std::shared_ptr<void> dead) noexcept;
  /* Throws std::system_error when there are no more threads. */
  void run(std::function<void()> body);
  /* True when all has ended. Otherwise lets go of the threads that hang. */
  bool finish(std::chrono::steady_clock::time_point deadline);

private:
  struct State;
  struct Job {
    std::thread thread;
    std::shared_ptr<bool> done; /* under the state's mutex */
  };
  void join_done();

  std::shared_ptr<State> state_; /* shared with threads that may outlive the reaper */
  std::list<Job> jobs_;
};

}  // namespace outbox
