/*
 * reaper.h: destroys sinks on threads of their own, because a destructor may wait for a resolver or a broker and the
 * main thread must not.
 */
#pragma once

#include <chrono>
#include <list>
#include <memory>
#include <thread>

#include "sink.h"

namespace outbox {

class Reaper {
public:
  Reaper();
  ~Reaper();
  void destroy(std::unique_ptr<Sink> sink);
  /* True when all is destroyed. Otherwise lets go of the threads that hang. */
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
