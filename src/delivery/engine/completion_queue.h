/*
 * completion_queue.h: where the delivery library's threads leave reports and log lines for the main thread, and the
 * one eventfd that says so.
 */
#pragma once

#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "delivery/base/thread.h"
#include "delivery/engine/sink.h"

namespace outbox {

class CompletionQueue {
public:
  struct Report {
    enum class What { Completions, Sent, Down, Up, Degraded, Resumed, Disabled };
    uint64_t sink; /* a number, not a pointer: a late report must find nothing */
    What what;
    std::vector<Completion> completions;
    std::vector<uint64_t> sent; /* tickets */
    std::string text;
    ob_reason reason = OB_REASON_NONE; /* with Down */
  };

  CompletionQueue(); /* throws std::system_error */
  ~CompletionQueue();
  CompletionQueue(const CompletionQueue &) = delete;
  CompletionQueue &operator=(const CompletionQueue &) = delete;

  int fd() const { return fd_; }
  /* Makes the main thread look. */
  void wake();

  void post(uint64_t sink, Completion completion);
  void post(Report report);
  void log(ob_log_level level, const std::string &sink, std::string_view text);

  /* Main thread, around one collection: begin() empties the eventfd, finish() hands over what has come until then.
   * In between nothing rings, since finish() will see it; a sink's own queue that writes to the eventfd itself still
   * does, and is not lost, because only begin() reads it. */
  void begin();
  void finish(std::deque<Report> &into);
  bool take_log(ob_log_line &line);

private:
  void wake_locked();

  const OwnThread main_;
  std::mutex mutex_;
  std::deque<Report> reports_;
  std::deque<ob_log_line> log_;
  bool signalled_ = false;
  int fd_;
};

/* What a sink is given to report to. `secrets` are taken out of every text. */
std::shared_ptr<Reporter> make_reporter(std::shared_ptr<CompletionQueue> completion_queue, uint64_t sink,
                                        std::string name, SecretMask secrets);

}  // namespace outbox
