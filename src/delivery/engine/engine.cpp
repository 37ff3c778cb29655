/*
 * engine.cpp: keeps the order of a key in one place for all kinds of sink: after an event ends within submit(),
 * later events of its key are returned until the caller has collected that completion. A failure for which the
 * endpoint may be to blame (5xx, timeout) is marked `suspect`, and the server records it 250 ms late: if the
 * circuit opens in that time, no attempt is spent. Without the delay each of the nine keys before the tenth paid
 * one attempt per outage.
 */
#include "delivery/engine/engine.h"

#include <sys/epoll.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include <algorithm>
#include <cassert>
#include <system_error>

#include "delivery/base/out_of_memory.h"
#include "delivery/base/text.h"

namespace outbox {

using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

static int checked(int fd, const char *what) {
  if (fd < 0)
    throw std::system_error(errno, std::generic_category(), what);
  return fd;
}

/* ---- a sink ---- */

/* Ends an event within submit(). Later events of its key are returned until the caller has collected this completion:
 * only the caller can decide about them. */
void OpenSink::end_at_once(Completion completion) {
  if (completion.key_hash != 0 && (completion.outcome != Outcome::Rejected || blocks_on_dead_letter_))
    stopped_keys_.insert(completion.key_hash);
  reporter_->complete(std::move(completion));
  outstanding_++;
}

/* Returns false for back-pressure. */
bool OpenSink::submit(const ob_event &event) {
  if (!stopped_keys_.empty() && stopped_keys_.count(event.key_hash) > 0) {
    end_at_once({{Outcome::Returned, "waits behind a failed event of the same key"}, event.ticket, event.key_hash});
    return true;
  }
  try {
    if (const ob_error *refused = event.refused)
      throw BadInput(refused->kind, refused->subject, refused->message, refused->detail);
    if (!sink_->checks_events())
      config_->check_event(event);
    Submitted submitted = sink_->submit(event);
    if (!submitted)
      return false;
    outstanding_ += !submitted.ended();
    breaker_.on_submit(event.ticket, event.attempt > 1);
    if (submitted.ended())
      end_at_once(std::move(*submitted.ended()));
  } catch (const BadInput &bad) {
    /* It was valid when it was enqueued; the options have changed since, or it came into the table in another way. */
    std::string text = bad.what() + (bad.detail.empty() ? "" : ": " + bad.detail);
    ob_reason reason = bad.kind == OB_TOO_LARGE ? OB_REASON_TOO_LARGE : OB_REASON_INVALID;
    end_at_once({{Outcome::Rejected, std::move(text), reason}, event.ticket, event.key_hash});
  }
  return true;
}

size_t OpenSink::submit(const ob_event *events, size_t n) {
  assert(engine_.is_callers_thread());
  if (closing_ || disabled_)
    return 0;
  n = std::min<size_t>(n, credit(Clock::now()));
  size_t taken = 0;
  const std::span<const uint32_t> order = sink_->order(events, n);
  const auto next = [&]() -> const ob_event & { return events[order.empty() ? taken : order[taken]]; };
  /* The accepted events stay accepted, the caller submits the rest again. */
  or_warn([&] {
    while (taken < n && submit(next()))
      taken++;
  });
  for (; !order.empty() && taken < n; taken++) /* they stand among those that were accepted */
    end_at_once({{Outcome::Returned, "the sink takes no more now"}, next().ticket, next().key_hash});
  or_warn([&] {
    sink_->flush();
    engine_.arm_timer();
  });
  return taken;
}

/* Whatever else goes wrong in `step`, the sink goes on. */
template <class Step> void OpenSink::or_warn(Step step) {
  try {
    step();
  } catch (const std::exception &error) {
    engine_.completion_queue_->log(OB_LOG_WARNING, name_, text_unless_memory(error));
  }
}

/* Time alone can open the circuit, so this reports the change. */
uint32_t OpenSink::credit(Time now) {
  bool was_open = breaker_.is_open();
  uint32_t n = breaker_.credit(now, outstanding_ == 0 && sink_->credit() > 0);
  if (breaker_.is_open() != was_open)
    circuit_moved(was_open, last_failure_);
  return n;
}

void OpenSink::status(ob_sink_status &out) {
  assert(engine_.is_callers_thread());
  CircuitBreaker::Time now = Clock::now();
  out.credit = std::min(credit(now), sink_->credit());
  out.retry_in_ms = out.credit > 0 ? 0 : breaker_.retry_in_ms(now);
  if (out.credit == 0 && out.retry_in_ms < 0)
    if (Time at = sink_->credit_at(); at > now && at != Time::max())
      out.retry_in_ms = std::chrono::ceil<milliseconds>(at - now).count();
  out.outage_ms = breaker_.is_open() ? std::chrono::ceil<milliseconds>(now - breaker_.outage_began()).count() : -1;
  Time paused_until = sink_->paused_until();
  out.paused_ms = paused_until > now ? std::chrono::ceil<milliseconds>(paused_until - now).count() : 0;
  out.failed_tries = failed_tries_;
  out.n_failures = n_failures_;
  std::copy(failures_.begin(), failures_.end(), out.failures);
  out.unanswered = unanswered_;
  out.state = breaker_.is_open() ? OB_SINK_CIRCUIT_OPEN : degraded_.empty() ? OB_SINK_OK : OB_SINK_DEGRADED;
  if (disabled_)
    out.state = OB_SINK_DISABLED;
  if (disabled_ || closing_) {
    out.credit = 0;
    out.retry_in_ms = -1;
  }
  copy_text(out.last_error, out.state == OB_SINK_DEGRADED ? degraded_ : last_error_);
}

void OpenSink::share(size_t index, size_t of, int64_t *rate_clock) {
  assert(engine_.is_callers_thread());
  sink_->share(index, of, rate_clock);
}

void OpenSink::keep_acknowledgements(bool keep) {
  assert(engine_.is_callers_thread());
  if (keep != keeps_acknowledgements_)
    sink_->keep_acknowledgements(keep);
  keeps_acknowledgements_ = keep;
}

void OpenSink::begin_slowly() {
  assert(engine_.is_callers_thread());
  sink_->begin_slowly();
}

void OpenSink::end_pause() {
  assert(engine_.is_callers_thread());
  breaker_.end_pause(Clock::now());
  sink_->end_pause();
}

bool OpenSink::next_resumed(std::string &error) {
  assert(engine_.is_callers_thread());
  if (resumed_.empty())
    return false;
  error = std::move(resumed_.front());
  resumed_.pop_front();
  return true;
}

void OpenSink::close(milliseconds grace) {
  assert(engine_.is_callers_thread());
  Time end = Clock::now() + std::max(grace, milliseconds(0));
  grace_end_ = closing_ ? std::min(grace_end_, end) : end;
  if (!closing_) {
    closing_ = true;
    sink_->release_queued();
  }
  engine_.arm_timer();
  engine_.completion_queue_->wake();
}

void OpenSink::poll(Time now) {
  or_warn([&] {
    sink_->poll();
    if (now >= breaker_.look_at())
      credit(now);
    if (closing_ && !abandoned_ && now >= grace_end_) {
      sink_->abandon();
      abandoned_ = true;
    }
  });
}

void OpenSink::circuit_moved(bool was_open, std::string_view reason) {
  if (breaker_.is_open() && !reason.empty())
    last_error_ = reason;
  if (breaker_.is_open() == was_open)
    return;
  if (!was_open)
    sink_->pause();
  if (was_open) {
    last_error_.clear();
    engine_.completion_queue_->log(OB_LOG_INFO, name_, "circuit closed: delivering again");
  } else {
    engine_.completion_queue_->log(OB_LOG_WARNING, name_, "circuit opened: " + std::string(reason));
  }
}

void OpenSink::on_signal(const CompletionQueue::Report &report) {
  bool was_open = breaker_.is_open();
  switch (report.what) {
  case CompletionQueue::Report::What::Down:
    count_failure(report.reason);
    breaker_.down(Clock::now());
    break;
  case CompletionQueue::Report::What::Up:
    breaker_.up(Clock::now());
    break;
  case CompletionQueue::Report::What::Failed:
    count_failure(report.reason);
    unanswered_ += report.unanswered;
    return;
  case CompletionQueue::Report::What::Degraded:
    degraded_ = report.text;
    return;
  case CompletionQueue::Report::What::Resumed:
    if (std::find(resumed_.begin(), resumed_.end(), report.text) == resumed_.end())
      resumed_.push_back(report.text);
    return;
  case CompletionQueue::Report::What::Disabled:
    if (!disabled_)
      engine_.completion_queue_->log(OB_LOG_WARNING, name_, "disabled: " + report.text);
    disabled_ = true;
    last_error_ = report.text;
    return;
  default:
    return;
  }
  circuit_moved(was_open, report.text);
}

static bool blames_sink(Outcome outcome) {
  return outcome == Outcome::SinkDown || outcome == Outcome::RetryBlameSink || outcome == Outcome::Refused ||
         outcome == Outcome::Retry;
}

/* The sink's own reason if it gave one, otherwise one that follows from the outcome. */
static ob_reason reason_of(const Completion &completion) {
  if (completion.reason != OB_REASON_NONE)
    return completion.reason;
  switch (completion.outcome) {
  case Outcome::Rejected:
    return OB_REASON_INVALID;
  case Outcome::Retry:
  case Outcome::RetryOwnPeer:
  case Outcome::RetryBlameSink:
  case Outcome::Refused:
  case Outcome::SinkDown:
    return OB_REASON_OTHER;
  default:
    return OB_REASON_NONE;
  }
}

void OpenSink::count_failure(ob_reason reason) {
  if (reason == OB_REASON_NONE)
    return;
  failures_[reason]++;
  n_failures_++;
}

ob_outcome OpenSink::on_completion(Completion &completion, Time now) {
  outstanding_--;
  completion.retry_after_ms = std::min<int64_t>(completion.retry_after_ms, config_->longest_delay().count());
  bool was_open = breaker_.is_open(), of_the_sink = blames_sink(completion.outcome);
  ob_outcome outcome = breaker_.on_result(completion, now);
  failed_tries_ += of_the_sink || completion.outcome == Outcome::RetryOwnPeer;
  count_failure(reason_of(completion));
  unanswered_ += completion.unanswered;
  if (of_the_sink)
    last_failure_ = completion.error;
  if (was_open || breaker_.is_open())
    circuit_moved(was_open, of_the_sink ? std::string_view(completion.error) : std::string_view());
  return outcome;
}

/* The delay that a peer has asked for. A shorter one than a second would use up all attempts at once. */
int64_t OpenSink::delay_ms(const Completion &completion, ob_outcome outcome) const {
  constexpr int64_t shortest_ms = 1000;
  if (outcome == OB_RETRY && completion.retry_after_ms < shortest_ms)
    return -1;
  return outcome == OB_DEFERRED && completion.retry_after_ms < 0 ? breaker_.defer_ms() : completion.retry_after_ms;
}

void OpenSink::on_sent(uint64_t ticket, Time now) {
  outstanding_--;
  bool was_open = breaker_.is_open();
  breaker_.on_sent(ticket, now);
  if (was_open)
    circuit_moved(true, {});
}

/* ---- the engine ---- */

Engine::Engine()
    : ob_engine{checked(epoll_create1(EPOLL_CLOEXEC), "epoll_create1")},
      completion_queue_(std::make_shared<CompletionQueue>()), timer_fd_(-1) {
  try {
    timer_fd_ = checked(timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC), "timerfd_create");
    epoll_event event{};
    event.events = EPOLLIN;
    checked(epoll_ctl(fd, EPOLL_CTL_ADD, completion_queue_->fd(), &event), "epoll_ctl");
    checked(epoll_ctl(fd, EPOLL_CTL_ADD, timer_fd_, &event), "epoll_ctl");
  } catch (...) {
    if (timer_fd_ >= 0)
      ::close(timer_fd_);
    ::close(fd);
    throw;
  }
  set_out_of_memory_fd(completion_queue_->fd());
}

Engine::~Engine() {
  set_out_of_memory_fd(-1);
  ::close(timer_fd_);
  ::close(fd);
}

OpenSink *Engine::open(std::string name, const SinkKind &kind, std::shared_ptr<const SinkConfig> config,
                       bool blocks_on_dead_letter, SecretMask secrets) {
  auto open_sink = std::make_unique<OpenSink>(*this, next_id_, std::move(name), config, blocks_on_dead_letter);
  open_sinks_.reserve(open_sinks_.size() + 1);
  open_sink->reporter_ = make_reporter(completion_queue_, next_id_, open_sink->name_, std::move(secrets));
  open_sink->sink_ = kind.open(open_sink->name_, std::move(config), open_sink->reporter_);
  next_id_++;
  open_sinks_.push_back(std::move(open_sink));
  return open_sinks_.back().get();
}

OpenSink *Engine::find(uint64_t id) {
  for (auto &open_sink : open_sinks_)
    if (open_sink->id_ == id)
      return open_sink.get();
  return nullptr;
}

/* Sets the timer to the earliest end of a grace period or check_at() of a sink. steady_clock is CLOCK_MONOTONIC. */
void Engine::arm_timer() {
  itimerspec when{};
  Clock::time_point next = Clock::time_point::max();
  for (auto &open_sink : open_sinks_) {
    next = std::min({next, open_sink->sink_->check_at(), open_sink->breaker_.look_at()});
    if (open_sink->closing_ && !open_sink->abandoned_)
      next = std::min(next, open_sink->grace_end_);
  }
  if (next == armed_)
    return;
  armed_ = next;
  if (next != Clock::time_point::max()) {
    auto ns = std::max<int64_t>(1, std::chrono::nanoseconds(next.time_since_epoch()).count());
    when.it_value.tv_sec = ns / 1'000'000'000;
    when.it_value.tv_nsec = ns % 1'000'000'000;
  }
  timerfd_settime(timer_fd_, TFD_TIMER_ABSTIME, &when, nullptr);
}

/* Returns false when `out` is full; the next call continues at next_in_report_. */
bool Engine::collect(OpenSink &open_sink, CompletionQueue::Report &report, Clock::time_point now, ob_completion *out,
                     size_t max, size_t &n) {
  switch (report.what) {
  case CompletionQueue::Report::What::Sent:
    for (; n < max && next_in_report_ < report.sent.size(); next_in_report_++) {
      uint64_t ticket = report.sent[next_in_report_];
      open_sink.on_sent(ticket, now);
      out[n++] = {ticket, OB_SENT, -1, false, false, 0, nullptr, nullptr};
    }
    return next_in_report_ == report.sent.size();
  case CompletionQueue::Report::What::Completions:
    for (; n < max && next_in_report_ < report.completions.size(); next_in_report_++) {
      Completion &completion = report.completions[next_in_report_];
      const bool is_sent = completion.outcome == Outcome::Sent;
      const bool has_text = !is_sent || (open_sink.keeps_acknowledgements_ && !completion.acknowledgement.empty());
      std::string *kept = has_text ? &errors_.emplace_back() : nullptr;
      ob_outcome outcome = open_sink.on_completion(completion, now);
      if (kept)
        *kept = std::move(is_sent ? completion.acknowledgement : completion.error);
      const char *text = kept ? kept->c_str() : nullptr;
      bool suspect = outcome == OB_RETRY && blames_sink(completion.outcome) && !open_sink.breaker_.is_open();
      out[n++] = {completion.ticket,
                  outcome,
                  open_sink.delay_ms(completion, outcome),
                  suspect,
                  completion.slow_retry,
                  completion.max_refusals,
                  is_sent ? text : nullptr,
                  is_sent ? nullptr : text};
    }
    return next_in_report_ == report.completions.size();
  default:
    open_sink.on_signal(report);
    return true;
  }
}

void Engine::collect(ob_completion *out, size_t max, size_t &n) {
  assert(is_callers_thread());
  if (is_out_of_memory())
    return;
  errors_.clear();
  Clock::time_point now = Clock::now();
  completion_queue_->begin();
  for (auto &open_sink : open_sinks_)
    open_sink->poll(now);
  arm_timer();
  completion_queue_->finish(reports_);

  for (; n < max && !reports_.empty(); reports_.pop_front(), next_in_report_ = 0)
    if (OpenSink *open_sink = find(reports_.front().sink))
      if (!collect(*open_sink, reports_.front(), now, out, max, n))
        break;
  if (!reports_.empty()) {
    completion_queue_->wake();
    return;
  }
  for (auto &open_sink : open_sinks_)
    open_sink->stopped_keys_.clear();
}

bool Engine::next_log(ob_log_line &line) {
  assert(is_callers_thread());
  if (is_out_of_memory()) {
    line = {OB_LOG_FATAL, {}, "out of memory"};
    return true;
  }
  return completion_queue_->take_log(line);
}

void Engine::destroy(std::unique_ptr<Sink> sink) noexcept {
  or_out_of_memory([&] { background_.destroy(std::move(sink)); }); /* without memory, on this thread */
}

void Engine::forget(OpenSink *open_sink) {
  assert(is_callers_thread());
  auto at = std::find_if(open_sinks_.begin(), open_sinks_.end(), [&](auto &each) { return each.get() == open_sink; });
  destroy(std::move((*at)->sink_));
  open_sinks_.erase(at);
  arm_timer(); /* its grace period may have been the next to end, and the timer must not fire again for it */
}

std::shared_ptr<Probe> Engine::probe(std::string name, const SinkKind &kind, Options server, Options mapping,
                                     Owner owner, milliseconds timeout, bool send, std::string topics) {
  auto probe = std::make_shared<Probe>(completion_queue_, std::move(name), timeout, send, std::move(topics));
  std::erase_if(probes_, [](auto &each) { return each.expired(); });
  probes_.push_back(probe);
  background_.run([probe, &kind, server = std::move(server), mapping = std::move(mapping), owner] {
    probe->run(kind, server, mapping, owner);
  });
  return probe;
}

bool Engine::close(milliseconds timeout) {
  assert(is_callers_thread());
  Clock::time_point deadline = Clock::now() + std::max(timeout, milliseconds(0));
  for (auto &weak : probes_)
    if (auto probe = weak.lock())
      probe->cancel();
  for (auto &open_sink : open_sinks_)
    destroy(std::move(open_sink->sink_));
  open_sinks_.clear();
  return background_.finish(deadline);
}

}  // namespace outbox
