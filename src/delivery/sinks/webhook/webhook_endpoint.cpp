/*
 * webhook_endpoint.cpp: a request's way through the two threads; webhook_endpoint.h describes locks and wake-ups.
 */
#include "delivery/sinks/webhook/webhook_endpoint.h"

#include <algorithm>
#include <cassert>
#include <future>
#include <set>

#include "delivery/base/until_memory.h"

namespace outbox {

using Clock = std::chrono::steady_clock;

/* During a pause longer than this, queued events are returned, so that others can use their memory. */
static constexpr std::chrono::seconds longest_wait{2};

Endpoint::Endpoint(std::string name, std::shared_ptr<const WebhookConfig> config, std::shared_ptr<Reporter> reporter)
    : name_(std::move(name)), config_(std::move(config)), reporter_(std::move(reporter)),
      limiter_(config_->concurrency, config_->rate), queue_(config_->concurrency) {}

// ---- the main thread ----

/* For a slow endpoint the credit is 0 until half of the queue is free: a claim reads rows from the cursor on, so one
 * claim should fetch several events. */
uint32_t Endpoint::credit() const {
  Time now = Clock::now();
  std::lock_guard lock(mutex_);
  size_t limit = shedding_ ? 0 : limiter_.max_held(now);
  bool nearly_full = limit >= 8 && limit < 256 && load() > limit / 2;
  return load() < limit && !nearly_full ? static_cast<uint32_t>(limit - load()) : 0;
}

Endpoint::Time Endpoint::credit_at() const {
  Time now = Clock::now();
  std::lock_guard lock(mutex_);
  return limiter_.open_at(now);
}

bool Endpoint::full() const {
  Time now = Clock::now();
  std::lock_guard lock(mutex_);
  return shedding_ || load() >= limiter_.max_held(now);
}

void Endpoint::share(size_t index, size_t of, int64_t *rate_clock) {
  std::lock_guard lock(mutex_);
  limiter_.share(index, of, rate_clock);
}

void Endpoint::begin_slowly() {
  std::lock_guard lock(mutex_);
  limiter_.begin_slowly(Clock::now());
}

Endpoint::Time Endpoint::paused_until() const {
  std::lock_guard lock(mutex_);
  return limiter_.paused_until();
}

/* pump() runs unasked: a timer for the former end of the pause may be pending, and wake() would wait for it. */
void Endpoint::end_pause(HttpLoop &loop) {
  {
    std::lock_guard lock(mutex_);
    limiter_.end_pause();
  }
  until_memory([&] { loop.post([self = shared_from_this()](HttpLoop &on) { self->pump(on); }); });
}

void Endpoint::push(WebhookRequest request) {
  std::lock_guard lock(mutex_);
  uint64_t key = request.key_hash;
  queue_.push(key, std::move(request));
}

void Endpoint::wake(HttpLoop &loop) {
  {
    std::lock_guard lock(mutex_);
    if (pump_posted_ || pump_scheduled_ || !queue_.can_start())
      return;
    pump_posted_ = true;
  }
  until_memory([&] { loop.post([self = shared_from_this()](HttpLoop &on) { self->pump(on); }); });
}

/* Makes room for a completion of each event that is queued or in flight, before the first of them is taken. It waits
 * for memory without the lock, because the HTTP thread, which frees some, takes the lock. */
std::unique_lock<std::mutex> Endpoint::lock_with_room(std::vector<Completion> &completions) {
  for (;;) {
    std::unique_lock lock(mutex_);
    const size_t needed = queue_.queued() + in_flight_.size() + failures_.size();
    if (completions.capacity() >= needed)
      return lock;
    lock.unlock();
    until_memory([&] { completions.reserve(needed); });
  }
}

bool Endpoint::report_failures() {
  if (!has_news_.exchange(false))
    return false;
  std::vector<Completion> completions;
  bool gone = false;
  {
    auto lock = lock_with_room(completions);
    for (Failure &failure : failures_) {
      gone |= failure.gone;
      uint64_t key = failure.completion.key_hash;
      completions.push_back(std::move(failure.completion));
      release(queue_.fail(key), "waits behind a failed event of the same key", completions);
    }
    if (halted_)  // no request succeeds: the circuit decides when to go on
      release(queue_.drain(), "not sent: the endpoint is down", completions);
    else if (shedding_)
      release(queue_.drain(), "not sent: the endpoint asked for a pause", completions);
    failures_.clear();
    halted_ = shedding_ = false;
  }
  if (gone)
    reporter_->disabled("410 Gone");
  if (!completions.empty())
    reporter_->complete(std::move(completions));
  return true;
}

void Endpoint::begin_outage() {
  std::lock_guard lock(mutex_);
  outage_++;
  limiter_.begin_slowly(Clock::now());
}

void Endpoint::release_queued(const char *why) {
  std::vector<Completion> completions;
  {
    auto lock = lock_with_room(completions);
    release(queue_.drain(), why, completions);
  }
  if (!completions.empty())
    reporter_->complete(std::move(completions));
}

void Endpoint::abandon(HttpLoop &loop) {
  std::vector<Completion> completions;
  {
    auto lock = lock_with_room(completions);
    for (auto &[serial, in_flight] : in_flight_) {
      completions.push_back(
          {{Outcome::Returned, text_if_memory("given up while the request was in flight: it may have arrived")},
           in_flight.ticket,
           in_flight.key});
      release(queue_.fail(in_flight.key), "not sent yet", completions);
    }
    in_flight_.clear();
    release(queue_.drain(), "not sent yet", completions);
  }
  if (!completions.empty())
    reporter_->complete(std::move(completions));
  until_memory([&] { loop.post([self = shared_from_this()](HttpLoop &on) { self->cancel_abandoned(on); }); });
}

void Endpoint::stop(HttpLoop &loop) {
  {
    std::lock_guard lock(mutex_);
    in_flight_.clear();
    failures_.clear();
    halted_ = true;
  }
  auto stopped = until_memory([] { return std::make_shared<std::promise<void>>(); });
  auto wait = stopped->get_future();
  until_memory([&] {
    loop.post([self = shared_from_this(), stopped](HttpLoop &on) {
      self->cancel_abandoned(on);
      self->idle_.clear();
      on.keep_connections(-static_cast<long>(self->config_->concurrency));
      stopped->set_value();
    });
  });
  wait.wait();
}

void Endpoint::release(const KeyedQueue<WebhookRequest>::Items &requests, const char *why,
                       std::vector<Completion> &completions) {
  for (const auto &[key, request] : requests)
    completions.push_back({{Outcome::Returned, text_if_memory(why)}, request.ticket, request.key_hash});
}

// ---- the loop's thread ----

void Endpoint::pump(HttpLoop &loop) {
  assert(loop.is_loop_thread());
  for (;;) {
    uint64_t serial;
    WebhookRequest request;
    Renewed<OauthToken>::Now token;
    {
      Time now = Clock::now();
      std::lock_guard lock(mutex_);
      pump_posted_ = pump_scheduled_ = false;
      if (halted_ || shedding_ || !queue_.can_start() || !may_start(loop, now))
        return;
      if (tokens_)
        token = tokens_->now();
      if (tokens_ && !token.value && token.error.empty()) {
        pump_scheduled_ = true;  // tokens_changed() follows
        return;
      }
      /* Memory first: from here on the request gets its completion whatever happens. */
      if (size_t wanted = failures_.size() + in_flight_.size() + 1; failures_.capacity() < wanted)
        failures_.reserve(2 * wanted);
      auto in_flight = in_flight_.try_emplace(last_serial_ + 1).first;
      request = std::move(*queue_.start());
      serial = ++last_serial_;
      in_flight->second = {request.ticket, request.key_hash, outage_, now};
    }
    if (tokens_ && !token.value) {
      fail(serial, {{Outcome::SinkDown, std::move(token.error), OB_REASON_AUTH}});
      return;
    }
    request.token = std::move(token.value);
    try {
      start(loop, serial, std::move(request));
    } catch (const std::bad_alloc &) {
      fail(serial, {{Outcome::Returned, text_if_memory("not sent: out of memory")}});
    } catch (const std::exception &error) {
      fail(serial, {{Outcome::Retry, text_if_memory(error.what())}});
    }
  }
}

/* Returns whether the next request may start now. If not, a connection that becomes free, a timer or the end of a
 * request will call pump(). */
bool Endpoint::may_start(HttpLoop &loop, Time now) {
  if (!host_)
    host_ = loop.host(config_->target.origin(), config_->concurrency);
  if (HttpLoop::QuotaGroup *full = loop.exhausted_quota(*host_, queue_.running())) {
    if (!waits_for_connection_)
      full->waiting.push_back([weak = weak_from_this()](HttpLoop &on) {
        if (auto self = weak.lock()) {
          self->waits_for_connection_ = false;
          self->pump(on);
        }
      });
    pump_scheduled_ = waits_for_connection_ = true;
    return false;
  }
  if (limiter_.start(queue_.running(), now))
    return true;
  if (Time when = limiter_.next(queue_.running(), now); when != Time::max()) {
    pump_scheduled_ = true;
    pump_at(loop, when);
  }
  return false;
}

void Endpoint::pump_at(HttpLoop &loop, Time when) {
  assert(loop.is_loop_thread());
  if (when >= pump_at_)
    return;
  loop.post_at(when, [weak = weak_from_this(), when](HttpLoop &on) {
    auto self = weak.lock();
    if (!self)
      return;
    if (self->pump_at_ == when)
      self->pump_at_ = Time::max();
    self->pump(on);
  });
  pump_at_ = when;
}

void Endpoint::start(HttpLoop &loop, uint64_t serial, WebhookRequest request) {
  assert(loop.is_loop_thread());
  std::unique_ptr<WebhookTransfer> transfer;
  if (idle_.empty()) {
    transfer = std::make_unique<WebhookTransfer>(config_, name_);
  } else {
    transfer = std::move(idle_.back());
    idle_.pop_back();
  }
  transfer->prepare(std::move(request));
  run(loop, serial, std::move(transfer));
}

void Endpoint::run(HttpLoop &loop, uint64_t serial, std::unique_ptr<WebhookTransfer> transfer) {
  CURL *easy = transfer->handle();
  active_[serial] = std::move(transfer);
  try {
    loop.start(easy, host_,
               [self = shared_from_this(), &loop, serial](CURLcode code) { self->done(loop, serial, code); });
  } catch (...) {
    active_.erase(serial);
    throw;
  }
}

void Endpoint::done(HttpLoop &loop, uint64_t serial, CURLcode code) {
  assert(loop.is_loop_thread());
  auto transfer = std::move(active_.extract(serial).mapped());
  try {
    transfer->ended(code);
    if (transfer->needs_new_connection()) {
      run(loop, serial, std::move(transfer));
      return;
    }
    HttpVerdict verdict = transfer->verdict(code);
    if (renew_token(*transfer, code))
      verdict = {{Outcome::Returned, "the endpoint has refused the access token (HTTP 401): another one is fetched"}};
    log_refusal(transfer->refusal());
    if (verdict.no_descriptor)
      loop.descriptors_ran_out();
    std::string acknowledgement =
        keeps_acknowledgements_ && verdict.outcome == Outcome::Sent ? transfer->acknowledgement() : std::string();
    transfer->clear();
    if (idle_.size() <= active_.size())  // keep no more idle handles than active ones
      idle_.push_back(std::move(transfer));
    if (verdict.outcome == Outcome::Sent) {
      refused_token_.reset();
      succeed(serial, verdict.pause_ms, std::move(acknowledgement));
    } else
      fail(serial, std::move(verdict));
  } catch (const std::bad_alloc &) {  // the ticket must get its completion anyway
    fail(serial, {{Outcome::Returned, text_if_memory("its response could not be read: out of memory")}});
  } catch (const std::exception &error) {
    fail(serial, {{Outcome::Retry, text_if_memory(error.what())}});
  }
  until_memory([&] { pump(loop); });
}

/* A token may be withdrawn before it ends. So the first refusal since a success asks for another token; the requests
 * that were sent with the same one are sent again, and what the endpoint says about the next token counts. */
bool Endpoint::renew_token(const WebhookTransfer &transfer, CURLcode code) {
  auto token = transfer.refused_token(code);
  if (!token || (refused_token_ && token != refused_token_))
    return false;
  refused_token_ = token;
  tokens_->refused(token);
  return true;
}

void Endpoint::tokens_changed(HttpLoop &loop) {
  until_memory([&] {
    loop.post([weak = weak_from_this()](HttpLoop &on) {
      if (auto self = weak.lock())
        self->pump(on);
    });
  });
}

/* The error text, which all users can read, does not contain the address. */
void Endpoint::log_refusal(const Refusal *refusal) {
  if (refusal && refusal->address != last_refused_)
    reporter_->log(OB_LOG_INFO, "refused to connect to " + refusal->address + ", which " + refusal->reason);
  last_refused_ = refusal ? refusal->address : std::string();
}

void Endpoint::succeed(uint64_t serial, int64_t pause_ms, std::string acknowledgement) {
  Completion completion;
  Time now = Clock::now();
  {
    std::lock_guard lock(mutex_);
    auto found = in_flight_.find(serial);
    if (found == in_flight_.end())
      return;  // abandoned: the ticket already has its completion
    completion = {{Outcome::Sent}, found->second.ticket, found->second.key};
    queue_.finish(found->second.key);
    limiter_.succeeded(queue_.running(), now);
    note_pause(lock, pause_ms, now);
    in_flight_.erase(found);
  }
  completion.acknowledgement = std::move(acknowledgement);
  reporter_->complete(std::move(completion));
}

void Endpoint::note_pause(const Locked &locked, int64_t pause_ms, Time now) {
  if (pause_ms < 0)
    return;
  Time until = now + std::chrono::milliseconds(pause_ms);
  limiter_.pause_until(until);
  if (until - now <= longest_wait)
    return;
  limiter_.begin_slowly(now);
  shedding_ = true;
  wake_main(locked);
}

/* Called with the lock limit, so that stop() cannot return, and the descriptor be closed, in between. */
void Endpoint::wake_main(const Locked & /*locked*/) {
  has_news_ = true;
  reporter_->wake();
}

void Endpoint::fail(uint64_t serial, HttpVerdict verdict) {
  Time now = Clock::now();
  std::lock_guard lock(mutex_);
  auto found = in_flight_.find(serial);
  if (found == in_flight_.end())
    return;
  auto [ticket, key, outage, started] = found->second;
  if (verdict.slow_down)
    limiter_.slow_down(started, now, verdict.too_many);
  note_pause(lock, verdict.pause_ms, now);
  if (outage != outage_ && (verdict.outcome == Outcome::RetryBlameSink || verdict.outcome == Outcome::Refused ||
                            verdict.outcome == Outcome::SinkDown || verdict.outcome == Outcome::Deferred))
    verdict.outcome = Outcome::Returned;
  halted_ = halted_ || verdict.outcome == Outcome::SinkDown || verdict.gone;
  failures_.push_back({{std::move(verdict), ticket, key}, verdict.gone});
  in_flight_.erase(found);
  wake_main(lock);
}

void Endpoint::cancel_abandoned(HttpLoop &loop) {
  assert(loop.is_loop_thread());
  std::set<uint64_t> wanted;
  {
    std::lock_guard lock(mutex_);
    for (auto &[serial, in_flight] : in_flight_)
      wanted.insert(serial);
  }
  for (auto transfer = active_.begin(); transfer != active_.end();) {
    if (wanted.count(transfer->first)) {
      ++transfer;
      continue;
    }
    loop.cancel(transfer->second->handle());
    transfer = active_.erase(transfer);
  }
}

}  // namespace outbox
