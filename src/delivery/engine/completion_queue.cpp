/*
 * completion_queue.cpp: a thread writes to the eventfd only if the main thread is not signalled yet, so a drain
 * costs one system call per batch of reports and not one per event.
 */
#include "delivery/engine/completion_queue.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <cassert>
#include <system_error>

#include "delivery/base/clean_text.h"
#include "delivery/base/text.h"

namespace outbox {

static constexpr size_t max_log_lines = 256;

CompletionQueue::CompletionQueue() : fd_(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)) {
  if (fd_ < 0)
    throw std::system_error(errno, std::generic_category(), "eventfd");
}

CompletionQueue::~CompletionQueue() {
  close(fd_);
}

void CompletionQueue::wake() {
  uint64_t one = 1;
  /* EAGAIN means that the counter is at its maximum, and so the descriptor is readable. */
  while (write(fd_, &one, sizeof one) < 0 && errno == EINTR)
    ;
}

void CompletionQueue::wake_locked() {
  if (!signalled_) {
    signalled_ = true;
    wake();
  }
}

void CompletionQueue::post(uint64_t sink, Completion &&completion) {
  std::lock_guard lock(mutex_);
  if (reports_.empty() || reports_.back().sink != sink || reports_.back().what != Report::What::Completions)
    reports_.push_back({sink, Report::What::Completions, {}, {}, {}});
  reports_.back().completions.push_back(std::move(completion));
  wake_locked();
}

void CompletionQueue::post_sent(uint64_t sink, std::vector<uint64_t> &&tickets) {
  std::lock_guard lock(mutex_);
  if (reports_.empty() || reports_.back().sink != sink || reports_.back().what != Report::What::Sent)
    reports_.push_back({sink, Report::What::Sent, {}, {}, {}});
  if (std::vector<uint64_t> &sent = reports_.back().sent; sent.empty())
    sent = std::move(tickets);
  else
    sent.insert(sent.end(), tickets.begin(), tickets.end());
  wake_locked();
}

/* Whether the older report of a state says nothing any more. */
static bool is_outdated(const CompletionQueue::Report &older, const CompletionQueue::Report &newer) {
  using What = CompletionQueue::Report::What;
  auto health = [](What what) { return what == What::Down || what == What::Up; };
  return older.sink == newer.sink && ((health(older.what) && health(newer.what)) ||
                                      (older.what == What::Degraded && newer.what == What::Degraded));
}

/* Events that end are as many as are in flight; but a peer may change a sink's state in a loop, faster than the main
 * thread looks. So a state takes the place of the one before, unless events have ended in between. */
void CompletionQueue::post(Report &&report) {
  using What = Report::What;
  constexpr int most_looked_at = 64;
  std::lock_guard lock(mutex_);
  int looked_at = 0;
  for (auto older = reports_.rbegin(); older != reports_.rend() && looked_at < most_looked_at; ++older, looked_at++) {
    if (older->sink == report.sink && (older->what == What::Completions || older->what == What::Sent))
      break;
    if (is_outdated(*older, report)) {
      reports_.erase(std::next(older).base());
      break;
    }
  }
  reports_.push_back(std::move(report));
  wake_locked();
}

void CompletionQueue::log(ob_log_level level, const std::string &sink, std::string_view text) {
  std::lock_guard lock(mutex_);
  if (log_.size() == max_log_lines)
    log_.pop_front();
  ob_log_line &line = log_.emplace_back();
  line.level = level;
  copy_text(line.sink, sink);
  copy_text(line.text, text);
  wake_locked();
}

void CompletionQueue::begin() {
  assert(main_.is_current());
  std::lock_guard lock(mutex_);
  uint64_t count;
  while (read(fd_, &count, sizeof count) < 0 && errno == EINTR)
    ;
  signalled_ = true;
}

void CompletionQueue::finish(std::list<Report> &into) noexcept {
  assert(main_.is_current());
  std::lock_guard lock(mutex_);
  signalled_ = false;
  if (!log_.empty())
    wake_locked();
  into.splice(into.end(), reports_);
}

bool CompletionQueue::take_log(ob_log_line &line) {
  assert(main_.is_current());
  std::lock_guard lock(mutex_);
  if (log_.empty())
    return false;
  line = log_.front();
  log_.pop_front();
  return true;
}

namespace {
class QueueReporter final : public Reporter {
public:
  QueueReporter(std::shared_ptr<CompletionQueue> completion_queue, uint64_t sink, std::string name,
                SecretMask secrets)
      : completion_queue_(std::move(completion_queue)), sink_(sink), name_(std::move(name)),
        secrets_(std::move(secrets)) {}

  void complete(Completion completion) override {
    tell(completion);
    completion_queue_->post(sink_, std::move(completion));
  }
  void complete(std::vector<Completion> completions) override {
    if (completions.empty())
      return;
    for (Completion &completion : completions)
      tell(completion);
    completion_queue_->post({sink_, What::Completions, std::move(completions), {}, {}});
  }
  void sent(std::vector<uint64_t> tickets) override {
    if (!tickets.empty())
      completion_queue_->post_sent(sink_, std::move(tickets));
  }
  void down(std::string text, ob_reason reason) override { post(What::Down, text, reason); }
  void up() override { post(What::Up, {}); }
  void failed(ob_reason reason, size_t unanswered) override {
    completion_queue_->post({sink_, What::Failed, {}, {}, {}, reason, unanswered});
  }
  void degraded(std::string reason) override { post(What::Degraded, reason); }
  void resumed(std::string error) override { post(What::Resumed, error); }
  void disabled(std::string reason) override { post(What::Disabled, reason); }
  void log(ob_log_level level, std::string text) override { completion_queue_->log(level, name_, told(text)); }
  void wake() override { completion_queue_->wake(); }
  int wake_fd() const override { return completion_queue_->fd(); }

private:
  using What = CompletionQueue::Report::What;

  /* Peers and events wrote parts of the text. A table, a view and the log take one line of valid UTF-8. */
  std::string told(std::string_view text) const { return marked_if_cut(text_to_show(text, secrets_), OB_ERROR_MAX); }
  void tell(Completion &completion) const {
    for (std::string *text : {&completion.error, &completion.acknowledgement})
      if (!text->empty())
        *text = told(*text);
  }
  void post(What what, std::string_view text, ob_reason reason = OB_REASON_NONE) {
    completion_queue_->post({sink_, what, {}, {}, told(text), reason});
  }

  std::shared_ptr<CompletionQueue> completion_queue_;
  uint64_t sink_;
  std::string name_;
  SecretMask secrets_;
};
}  // namespace

std::shared_ptr<Reporter> make_reporter(std::shared_ptr<CompletionQueue> completion_queue, uint64_t sink,
                                        std::string name, SecretMask secrets) {
  return std::make_shared<QueueReporter>(std::move(completion_queue), sink, std::move(name), std::move(secrets));
}

}  // namespace outbox
