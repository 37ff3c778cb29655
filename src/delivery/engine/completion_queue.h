/*
 * completion_queue.h: the queue in which the delivery library's threads leave reports and log lines for the main
 * thread, and the eventfd that announces them.
 *
 * Any thread may call post(), log() and wake(); begin(), finish() and take_log() belong to the main thread. The
 * mutex guards all state. No wake-up is lost: signalled_ is true only while the eventfd is readable, or between
 * begin() and finish(), and finish() takes everything that arrived in between.
 */
#pragma once

#include <deque>
#include <list>
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
    enum class What { Completions, Sent, Down, Up, Failed, Degraded, Resumed, Disabled };
    uint64_t sink; /* an id, not a pointer: a report for a closed sink is ignored */
    What what;
    std::vector<Completion> completions;
    std::vector<uint64_t> sent; /* tickets */
    std::string text;           /* with Resumed: the beginning of the errors that are over, cleaned as they are */
    ob_reason reason = OB_REASON_NONE; /* with Down and Failed */
    size_t unanswered = 0;             /* with Failed */
  };

  CompletionQueue(); /* throws std::system_error */
  ~CompletionQueue();
  CompletionQueue(const CompletionQueue &) = delete;
  CompletionQueue &operator=(const CompletionQueue &) = delete;

  int fd() const { return fd_; }
  /* Wakes the main thread. */
  void wake();

  void post(uint64_t sink, Completion &&completion);
  void post_sent(uint64_t sink, std::vector<uint64_t> &&tickets);
  void post(Report &&report);
  void log(ob_log_level level, const std::string &sink, std::string_view text);

  /* Called around one collection. begin() empties the eventfd; finish() appends all reports to `into`. Posts in
   * between do not write to the eventfd, because finish() takes them anyway. A library that writes to the eventfd
   * itself (Reporter::wake_fd) still does, and that wake-up stays pending, because only begin() reads the eventfd. */
  void begin();
  void finish(std::list<Report> &into) noexcept;
  bool take_log(ob_log_line &line);

private:
  void wake_locked();

  const OwnThread main_;
  std::mutex mutex_;
  std::list<Report> reports_; /* a list, so that finish() needs no memory */
  std::deque<ob_log_line> log_;
  bool signalled_ = false;
  int fd_;
};

/* Makes the Reporter of a sink. In all texts `secrets` are masked, and what is not one line of valid UTF-8 is
 * replaced, and what is longer than OB_ERROR_MAX is cut and marked. */
std::shared_ptr<Reporter> make_reporter(std::shared_ptr<CompletionQueue> completion_queue, uint64_t sink,
                                        std::string name, SecretMask secrets);

}  // namespace outbox
