/*
 * http_sender.cpp: the requests of a sink, on the HTTP loop's thread. pump() starts all requests that may start. It
 * runs
 * - as a task, when the handover wakes: events were queued, or failures were fetched; posted_ suppresses a second
 * task;
 * - after every request, from done();
 * - by a timer when the limiter allows the next request, and when another sink frees a connection.
 * posted_ is cleared before the handover is read, so an event that is queued later posts again.
 */
#include "delivery/http/http_sender.h"

#include <algorithm>
#include <cassert>
#include <future>

#include "delivery/base/until_memory.h"
#include "delivery/http/concurrency_limiter.h"
#include "delivery/http/url_parts.h"

namespace outbox {

using Time = HttpLoop::Time;
using Clock = std::chrono::steady_clock;

/* During a pause longer than this, queued events are returned, so that others can use their memory. */
static constexpr std::chrono::seconds longest_wait{2};

class HttpSender::Requests : public std::enable_shared_from_this<Requests> {
public:
  Requests(std::string name, std::shared_ptr<const HttpPeer> peer, std::shared_ptr<const HttpProtocol> protocol,
           std::shared_ptr<Reporter> reporter, HttpLoop &loop)
      : name_(std::move(name)), peer_(std::move(peer)), protocol_(std::move(protocol)),
        reporter_(std::move(reporter)), loop_(loop), most_(protocol_->most_messages()),
        limiter_(peer_->concurrency, peer_->rate),
        handover_(reporter_, static_cast<uint32_t>(peer_->concurrency * most_), [this] { post_pump(); }) {}

  // ---- the main thread ----

  Handover<HttpMessage> &handover() { return handover_; }
  uint32_t credit();
  bool is_full() { return handover_.credit(worth_holding()) == 0; }
  /* Calls `call` with the limiter, which is locked meanwhile. */
  template <class Call> auto with_limiter(Call call) {
    std::lock_guard lock(limiter_mutex_);
    return call(limiter_);
  }
  void end_pause();
  void report_failures();
  void abandon();
  void stop();

private:
  struct Request {
    std::vector<uint64_t> serials; /* of its messages; both vectors have room for all that it may get */
    std::vector<HttpMessage> messages;
    size_t weight = 0;
    bool alone = false; /* gets no further message */
    HttpCall call;
    Time started;
    std::unique_ptr<HttpTransfer> transfer; /* while it is active */
  };
  using Requested = std::list<Request>; /* a request moves between lists without memory */

  void post_pump();

  // ---- the main thread ----

  size_t worth_holding();

  // ---- the loop's thread ----

  void pump();
  bool form();
  void add(Request &request, uint64_t serial, HttpMessage message);
  bool limiter_allows();
  bool may_start();
  void start();
  void run(Requested::iterator request);
  void done(Requested::iterator request, CURLcode code);
  HttpVerdict classify(Request &request, CURLcode code);
  void keep_acknowledgements(const Request &request);
  void end(Request &request, const HttpVerdict &verdict);
  void end_all(Request &request, Outcome outcome, const char *error);
  void split(Requested::iterator request);
  void keep(std::unique_ptr<HttpTransfer> transfer);
  void pump_at(Time when);
  void pause(int64_t ms);
  void obey(const Request &request, const HttpVerdict &verdict);
  void log_refusal(const Refusal *refusal);
  void cancel_all();

  const std::string name_;
  const std::shared_ptr<const HttpPeer> peer_;
  const std::shared_ptr<const HttpProtocol> protocol_;
  const std::shared_ptr<Reporter> reporter_;
  HttpLoop &loop_;
  const size_t most_; /* messages of a request */
  std::atomic<bool> posted_{false};
  std::mutex limiter_mutex_;
  ConcurrencyLimiter limiter_;     /* guarded by limiter_mutex_ */
  std::atomic<bool> sheds_{false}; /* a long pause has begun: the main thread takes the queued events back */
  Handover<HttpMessage> handover_;

  /* From here on: the loop's thread only. */
  Requested forming_; /* not sent yet: the first is the next one */
  Requested active_;
  std::vector<std::unique_ptr<HttpTransfer>> idle_;
  std::shared_ptr<HttpLoop::QuotaGroup> host_;
  Time paused_until_{};        /* this process lacks something */
  Time pump_at_ = Time::max(); /* when the timer fires; max() = no timer */
  bool waits_for_connection_ = false, stopped_ = false;
  std::string last_refused_; /* the last refused address, so that it is logged once */
};

// ---- any thread ----

void HttpSender::Requests::post_pump() {
  if (posted_.exchange(true))
    return;
  until_memory([&] { loop_.post([self = shared_from_this()](HttpLoop &) { self->pump(); }); });
}

// ---- the main thread ----

size_t HttpSender::Requests::worth_holding() {
  return sheds_ ? 0 : most_ * with_limiter([](auto &limiter) { return limiter.max_held(Clock::now()); });
}

/* For a slow peer the credit is 0 until half of the queue is free: a claim reads rows from the cursor on, so one
 * claim should fetch several events. */
uint32_t HttpSender::Requests::credit() {
  const size_t most = worth_holding();
  const uint32_t credit = handover_.credit(most);
  const bool nearly_full = most >= 8 && most < 256 && credit < most / 2;
  return nearly_full ? 0 : credit;
}

/* pump() runs unasked: a timer for the former end of the pause may be pending. */
void HttpSender::Requests::end_pause() {
  with_limiter([](auto &limiter) { limiter.end_pause(); });
  post_pump();
}

void HttpSender::Requests::report_failures() {
  handover_.report_failures();
  if (sheds_) {
    handover_.release_queued("not sent: the peer asked for a pause");
    sheds_ = false;
  }
}

void HttpSender::Requests::abandon() {
  handover_.abandon();
  until_memory([&] { loop_.post([self = shared_from_this()](HttpLoop &) { self->cancel_all(); }); });
}

void HttpSender::Requests::stop() {
  auto stopped = until_memory([] { return std::make_shared<std::promise<void>>(); });
  auto wait = stopped->get_future();
  until_memory([&] {
    loop_.post([self = shared_from_this(), stopped](HttpLoop &loop) {
      self->stopped_ = true;
      self->cancel_all();
      self->idle_.clear();
      loop.keep_connections(-static_cast<long>(self->peer_->concurrency));
      stopped->set_value();
    });
  });
  wait.wait();
}

// ---- the loop's thread ----

void HttpSender::Requests::pump() {
  assert(loop_.is_loop_thread());
  posted_ = false;
  while (!stopped_ && active_.size() < peer_->concurrency && Clock::now() >= paused_until_ && limiter_allows() &&
         form() && may_start())
    start();
}

/* Asked before a request is formed, too: its messages could not be taken back during a pause. */
bool HttpSender::Requests::limiter_allows() {
  if (forming_.empty() && !handover_.has_work())
    return false;
  const Time now = Clock::now();
  const Time next = with_limiter([&](auto &limiter) { return limiter.next(active_.size(), now); });
  if (next > now && next != Time::max())
    pump_at(next);
  return next <= now;
}

/* Makes the next request as large as it can be. Returns false if there is no message. */
bool HttpSender::Requests::form() {
  if (forming_.empty() && !handover_.has_work())
    return false;
  if (forming_.empty()) {
    Request &made = forming_.emplace_back();
    made.serials.reserve(most_);
    made.messages.reserve(most_);
  }
  Request &next = forming_.front();
  try {
    while (!next.alone && next.messages.size() < most_) {
      uint64_t serial;
      auto message = handover_.start(false, serial);
      if (!message)
        break;
      if (next.messages.empty() || next.weight + message->weight <= protocol_->most_weight()) {
        add(next, serial, std::move(*message));
        continue;
      }
      next.alone = true;
      handover_.send_or_return(serial, [&] {
        Request one;
        one.serials.reserve(most_);
        one.messages.reserve(most_);
        add(one, serial, std::move(*message));
        forming_.push_back(std::move(one));
      });
    }
  } catch (const std::bad_alloc &) {
    if (next.messages.empty())
      throw;
  }
  return !next.messages.empty();
}

void HttpSender::Requests::add(Request &request, uint64_t serial, HttpMessage message) {
  request.weight += message.weight;
  request.serials.push_back(serial);
  request.messages.push_back(std::move(message));
}

/* Returns whether the next request may start now. If not, a connection that becomes free, a timer or the end of a
 * request will call pump(). */
bool HttpSender::Requests::may_start() {
  if (!host_)
    host_ = loop_.host(std::string(origin_of(protocol_->url())), peer_->concurrency);
  HttpLoop::QuotaGroup *full = loop_.exhausted_quota(*host_, active_.size());
  if (full && !waits_for_connection_) {
    full->waiting.push_back([weak = weak_from_this()](HttpLoop &) {
      if (auto self = weak.lock()) {
        self->waits_for_connection_ = false;
        self->pump();
      }
    });
    waits_for_connection_ = true;
  }
  if (full)
    return false;
  const Time now = Clock::now();
  Time next = now;
  const bool may = with_limiter([&](auto &limiter) {
    if (limiter.start(active_.size(), now))
      return true;
    next = limiter.next(active_.size(), now);
    return false;
  });
  if (!may && next != Time::max())
    pump_at(next);
  return may;
}

void HttpSender::Requests::start() {
  Request &request = forming_.front();
  active_.splice(active_.begin(), forming_, forming_.begin());
  request.started = Clock::now();
  try {
    if (!idle_.empty()) {
      request.transfer = std::move(idle_.back());
      idle_.pop_back();
    } else {
      request.transfer = std::make_unique<HttpTransfer>(peer_, name_, protocol_->url());
    }
    request.call = protocol_->call(request.messages);
    KeptConnection kept = KeptConnection::FREE;
    for (const HttpMessage &message : request.messages)
      kept = std::max(kept, message.kept);
    request.transfer->prepare(request.call.url, request.call.headers, request.call.body, kept);
    run(active_.begin());
    return;
  } catch (const std::bad_alloc &) {
    end_all(request, Outcome::Returned, "not sent: out of memory");
  } catch (const std::exception &error) {
    end_all(request, Outcome::Retry, error.what());
  }
  active_.erase(active_.begin());
}

void HttpSender::Requests::run(Requested::iterator request) {
  loop_.start(
      request->transfer->handle(), host_,
      [self = shared_from_this(), request](CURLcode code) { self->done(request, code); },
      peer_->http2 ? peer_->timeout : std::chrono::milliseconds(0));
}

void HttpSender::Requests::done(Requested::iterator request, CURLcode code) {
  assert(loop_.is_loop_thread());
  bool again = false;
  try {
    request->transfer->ended(code);
    if (request->transfer->needs_new_connection()) {
      run(request);
      return;
    }
    if (peer_->http2 && request->transfer->timed_out(code))
      loop_.end_silent_connection(request->transfer->handle(), *host_, peer_->timeout);
    const HttpVerdict verdict = classify(*request, code);
    again = verdict.send_each_alone;
    obey(*request, verdict);
    if (again)
      split(request);
    else
      end(*request, verdict);
  } catch (const std::bad_alloc &) { /* the messages must end anyway */
    end_all(*request, Outcome::Returned, "its answer could not be read: out of memory");
  } catch (const std::exception &error) {
    end_all(*request, Outcome::Retry, error.what());
  }
  keep(std::move(request->transfer));
  active_.erase(request);
  until_memory([&] { pump(); });
}

HttpVerdict HttpSender::Requests::classify(Request &request, CURLcode code) {
  const HttpTransfer &transfer = *request.transfer;
  log_refusal(transfer.refusal());
  auto failure = transfer.no_answer(code);
  if (!failure) {
    HttpVerdict verdict = protocol_->classify_response(transfer, code, request.messages);
    verdict.send_each_alone &= request.messages.size() > 1;
    for (size_t i = 0; !verdict.send_each_alone && i < request.messages.size(); i++)
      if (verdict.of(i).outcome != Outcome::Sent)
        peer_->history->answered_events.add(request.messages[i].position);
    return verdict;
  }
  if (failure->no_descriptor) {
    loop_.descriptors_ran_out();
    pause(failure->pause_ms);
  }
  failure->error = peer_->secrets.masked(failure->error);
  return std::move(*failure);
}

/* Of messages that are not delivered they are dropped. Without memory there are none: the messages end anyway. */
void HttpSender::Requests::keep_acknowledgements(const Request &request) {
  try {
    std::vector<std::string> texts = protocol_->acknowledgements(*request.transfer, request.messages);
    for (size_t i = 0; i < std::min(texts.size(), request.serials.size()); i++)
      handover_.acknowledged(request.serials[i], std::move(texts[i]));
  } catch (const std::exception &) {
  }
}

/* Takes no memory but for texts, which are left out if there is none. */
void HttpSender::Requests::end(Request &request, const HttpVerdict &verdict) {
  bool down = false;
  std::vector<uint64_t> sent;
  until_memory([&] { sent.reserve(request.serials.size()); });
  assert(verdict.each.empty() || verdict.each.size() == request.serials.size());
  for (size_t i = 0; i < request.serials.size(); i++) {
    const Verdict &end = verdict.of(i);
    if (end.outcome == Outcome::Sent)
      sent.push_back(request.serials[i]);
    else if (end.outcome == Outcome::Rejected)
      handover_.refuse(request.serials[i], text_if_memory(end.error), end.reason);
    else
      handover_.fail(request.serials[i], end.outcome, text_if_memory(end.error), end.reason, end.retry_after_ms);
    down |= end.outcome == Outcome::SinkDown;
  }
  if (!sent.empty() && handover_.keeps_acknowledgements())
    keep_acknowledgements(request);
  if (!sent.empty())
    handover_.succeed(sent);
  if (down)
    handover_.halt("not sent: the sink is down");
}

void HttpSender::Requests::end_all(Request &request, Outcome outcome, const char *error) {
  for (uint64_t serial : request.serials)
    handover_.fail(serial, outcome, text_if_memory(error));
}

/* Each message gets a request of its own. */
void HttpSender::Requests::split(Requested::iterator request) {
  Requested alone(request->messages.size());
  for (Request &one : alone) {
    one.serials.reserve(1);
    one.messages.reserve(1);
    one.alone = true;
  }
  auto one = alone.begin();
  for (size_t i = 0; i < request->messages.size(); i++, ++one)
    add(*one, request->serials[i], std::move(request->messages[i]));
  forming_.splice(forming_.begin(), alone);
}

/* Keeps no more idle handles than active ones. */
void HttpSender::Requests::keep(std::unique_ptr<HttpTransfer> transfer) {
  try {
    if (idle_.size() <= active_.size())
      idle_.push_back(std::move(transfer));
  } catch (const std::bad_alloc &) {
  }
}

void HttpSender::Requests::pump_at(Time when) {
  if (when >= pump_at_)
    return;
  loop_.post_at(when, [weak = weak_from_this(), when](HttpLoop &) {
    auto self = weak.lock();
    if (!self)
      return;
    if (self->pump_at_ == when)
      self->pump_at_ = Time::max();
    self->pump();
  });
  pump_at_ = when;
}

void HttpSender::Requests::pause(int64_t ms) {
  paused_until_ = Clock::now() + std::chrono::milliseconds(ms);
  pump_at(paused_until_);
}

/* Tells the limiter what the answer asks for. */
void HttpSender::Requests::obey(const Request &request, const HttpVerdict &verdict) {
  const Time now = Clock::now();
  const auto pause = std::min(std::chrono::milliseconds(std::max<int64_t>(verdict.pause_ms, 0)), peer_->max_pause);
  with_limiter([&](auto &limiter) {
    if (verdict.slow_down)
      limiter.slow_down(request.started, now, verdict.too_many);
    else if (!verdict.send_each_alone)
      limiter.succeeded(active_.size(), now);
    if (pause.count() > 0)
      limiter.pause_until(now + pause);
    if (pause > longest_wait)
      limiter.begin_slowly(now);
  });
  if (pause <= longest_wait)
    return;
  for (Request &waiting : forming_)
    end_all(waiting, Outcome::Returned, "not sent: the peer asked for a pause");
  forming_.clear();
  sheds_ = true;
  reporter_->wake();
}

/* The error text, which all users can read, does not contain the address. */
void HttpSender::Requests::log_refusal(const Refusal *refusal) {
  if (refusal && refusal->address != last_refused_)
    reporter_->log(OB_LOG_INFO, "refused to connect to " + refusal->address + ", which " + refusal->reason);
  last_refused_ = refusal ? refusal->address : std::string();
}

/* abandon() has returned their events; those of stop() have nobody who waits for them. */
void HttpSender::Requests::cancel_all() {
  assert(loop_.is_loop_thread());
  for (Request &request : active_)
    loop_.cancel(request.transfer->handle());
  active_.clear();
  forming_.clear();
}

// ---- the sink ----

HttpSender::HttpSender(const std::string &name, const std::shared_ptr<const HttpPeer> &peer,
                       std::shared_ptr<const HttpProtocol> protocol, std::shared_ptr<Reporter> reporter)
    : protocol_(std::move(protocol)), history_(peer->history), loop_(HttpLoop::shared()),
      requests_(std::make_shared<Requests>(name, peer, protocol_, std::move(reporter), *loop_)) {
  loop_->post([n = static_cast<long>(peer->concurrency)](HttpLoop &loop) { loop.keep_connections(n); });
}

HttpSender::~HttpSender() {
  try {
    requests_->stop();
  } catch (...) { /* out of memory: the rest ends with the loop */
  }
}

void HttpSender::keep_acknowledgements(bool keep) {
  requests_->handover().keep_acknowledgements(keep);
}

uint32_t HttpSender::credit() const {
  return requests_->credit();
}

Sink::Time HttpSender::credit_at() const {
  return requests_->with_limiter([](auto &limiter) { return limiter.open_at(Clock::now()); });
}

void HttpSender::share(size_t index, size_t of, int64_t *rate_clock) {
  requests_->with_limiter([&](auto &limiter) { limiter.share(index, of, rate_clock); });
}

void HttpSender::begin_slowly() {
  requests_->with_limiter([](auto &limiter) { limiter.begin_slowly(Clock::now()); });
}

Sink::Time HttpSender::paused_until() const {
  return requests_->with_limiter([](auto &limiter) { return limiter.paused_until(); });
}

void HttpSender::end_pause() {
  requests_->end_pause();
}

Submitted HttpSender::submit(const ob_event &event) {
  if (requests_->is_full())
    return false;
  HttpMessage message = protocol_->render(event);
  message.ticket = event.ticket;
  message.key_hash = event.key_hash;
  message.position = event.position;
  message.kept = kept_connection_for(event, *history_);
  requests_->handover().push(std::move(message));
  return true;
}

void HttpSender::flush() {
  requests_->handover().wake_if_needed();
}

void HttpSender::poll() {
  requests_->report_failures();
}

void HttpSender::pause() {
  begin_slowly();
  requests_->handover().begin_outage();
}

void HttpSender::release_queued() {
  requests_->handover().release_queued("not sent yet");
}

void HttpSender::abandon() {
  requests_->abandon();
}

}  // namespace outbox
