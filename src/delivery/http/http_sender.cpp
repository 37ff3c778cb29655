/*
 * http_sender.cpp: the requests of a sink, on the HTTP loop's thread. pump() starts all requests that may start. It
 * runs
 * - as a task, when the queue wakes: events were queued, or failures were fetched; posted_ suppresses a second
 * task;
 * - after every request, from done();
 * - by a timer when the limiter allows the next request, and when another sink frees a connection.
 * posted_ is cleared before the queue is read, so an event that is queued later posts again.
 */
#include "delivery/http/http_sender.h"

#include <algorithm>
#include <cassert>
#include <future>
#include <unordered_set>
#include <utility>

#include "delivery/base/out_of_memory.h"
#include "delivery/http/concurrency_limiter.h"
#include "delivery/http/http_batch.h"
#include "delivery/http/url_parts.h"

namespace outbox {

size_t HttpMessage::size() const {
  size_t bytes = sizeof(HttpMessage) + url.size() + body.size();
  for (const auto &[name, value] : headers)
    bytes += 2 * sizeof(std::string) + name.size() + value.size();
  for (const std::string &part : parts)
    bytes += sizeof(std::string) + part.size();
  return bytes;
}

void prepare(HttpTransfer &transfer, const HttpContent &content, const HttpCall &call) {
  const HttpMessage &first = content.messages.at(0);
  KeptConnection kept = KeptConnection::FREE;
  for (const HttpMessage &message : content.messages)
    kept = std::max(kept, message.kept);
  transfer.prepare(first.url, first.headers, call.body.empty() ? first.body : call.body, kept, call.headers);
}

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
        collects_for_(protocol_->collects_for()), limiter_(peer_->concurrency, peer_->rate),
        queue_(reporter_, static_cast<uint32_t>(peer_->concurrency * most_), [this] { post_pump(); }) {}

  // ---- the main thread ----

  SendQueue<HttpMessage> &queue() { return queue_; }
  void flush();
  void begin_outage();
  void release_queued();
  uint32_t credit();
  bool is_full() { return queue_.credit(worth_holding()) == 0; }
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
  struct Request : HttpBatch {
    Request(uint64_t outages, Time now, HttpBatch batch = {})
        : HttpBatch(std::move(batch)), outage(outages), formed(now) {}

    const uint64_t outage; /* how many there were when it was formed */
    const Time formed;
    HttpCall call;
    Time started;
    std::unique_ptr<HttpTransfer> transfer; /* while it is active */
  };
  using Requested = std::list<Request>;

  void post_pump();

  // ---- the main thread ----

  size_t worth_holding();

  // ---- the loop's thread ----

  void pump();
  bool may_form(Time now);
  bool has_connection();
  bool knows_grant(std::optional<HttpGrant> &grant);
  bool form(Time now);
  void add_run(Request &request, uint64_t key);
  bool fits(const Request &request, const HttpMessage &message) const;
  bool may_start(Time now);
  void start(Time now, std::shared_ptr<const std::string> grant);
  void run(Requested::iterator request);
  void done(Requested::iterator request, CURLcode code);
  HttpVerdict classify(Request &request, CURLcode code);
  bool is_first_refusal(const Request &request);
  void keep_acknowledgements(const Request &request);
  void end(Request &request, const HttpVerdict &verdict);
  void shrink(const Request &request, const HttpVerdict &verdict);
  void end_all(Request &request, Outcome outcome, const char *error);
  void return_forming(const char *why);
  void keep(std::unique_ptr<HttpTransfer> transfer);
  void pump_at(Time when);
  bool obey(const Request &request, const HttpVerdict &verdict);
  void shed();
  void log_refusal(const Refusal *refusal);
  void cancel_all();

  const std::string name_;
  const std::shared_ptr<const HttpPeer> peer_;
  std::shared_ptr<const HttpProtocol> protocol_; /* null after stop() */
  const std::shared_ptr<Reporter> reporter_;
  HttpLoop &loop_;
  const size_t most_; /* messages of a request */
  const std::chrono::milliseconds collects_for_;
  std::atomic<uint64_t> outages_{0};
  std::atomic<bool> posted_{false};
  std::mutex limiter_mutex_;
  ConcurrencyLimiter limiter_;     /* guarded by limiter_mutex_ */
  std::atomic<bool> sheds_{false}; /* a long pause has begun: the main thread takes the queued events back */
  std::atomic<bool> gone_{false};  /* the main thread is to report it */
  std::atomic<bool> lacks_grant_{false};
  SendQueue<HttpMessage> queue_;

  /* From here on: the loop's thread only. */
  size_t most_weight_ = protocol_->most_weight(); /* of a request */
  Requested forming_;                             /* not sent yet: the first is the next one */
  Requested active_;
  std::vector<std::unique_ptr<HttpTransfer>> idle_;
  std::shared_ptr<HttpLoop::QuotaGroup> host_;
  std::shared_ptr<const std::string> refused_grant_; /* since the last success; another one was asked for */
  Time pump_at_ = Time::max();                       /* when the timer fires; max() = no timer */
  bool waits_for_connection_ = false, stopped_ = false;
  std::string last_refused_; /* the last refused address, so that it is logged once */
};

// ---- any thread ----

void HttpSender::Requests::post_pump() {
  if (posted_.exchange(true))
    return;
  loop_.post([self = shared_from_this()](HttpLoop &) { self->pump(); });
}

// ---- the main thread ----

size_t HttpSender::Requests::worth_holding() {
  return sheds_ ? 0 : most_ * with_limiter([](auto &limiter) { return limiter.max_held(Clock::now()); });
}

/* For a slow peer the credit is 0 until half of the queue is free: a claim reads rows from the cursor on, so one
 * claim should fetch several events. */
uint32_t HttpSender::Requests::credit() {
  const size_t most = worth_holding();
  const uint32_t credit = queue_.credit(most);
  const bool nearly_full = most >= 8 && most < 256 && credit < most / 2;
  return nearly_full ? 0 : credit;
}

/* pump() runs unasked: a timer for the former end of the pause may be pending. */
void HttpSender::Requests::end_pause() {
  with_limiter([](auto &limiter) { limiter.end_pause(); });
  post_pump();
}

void HttpSender::Requests::report_failures() {
  if (gone_.exchange(false))
    reporter_->disabled("410 Gone");
  queue_.report_failures();
  if (lacks_grant_.exchange(false))
    post_pump();
  if (sheds_) {
    queue_.release_queued("not sent: the peer asked for a pause");
    sheds_ = false;
  }
}

/* A request that waits for more may take events that cannot start by themselves: those behind its own. */
void HttpSender::Requests::flush() {
  if (collects_for_.count() > 0)
    post_pump();
  else
    queue_.wake_if_needed();
}

void HttpSender::Requests::begin_outage() {
  outages_++;
  queue_.begin_outage();
  loop_.post([self = shared_from_this()](HttpLoop &) { self->return_forming("not sent: the sink is down"); });
}

void HttpSender::Requests::release_queued() {
  queue_.release_queued("not sent yet");
  loop_.post([self = shared_from_this()](HttpLoop &) { self->return_forming("not sent yet"); });
}

void HttpSender::Requests::abandon() {
  queue_.abandon();
  loop_.post([self = shared_from_this()](HttpLoop &) { self->cancel_all(); });
}

void HttpSender::Requests::stop() {
  auto stopped = std::make_shared<std::promise<void>>();
  auto wait = stopped->get_future();
  loop_.post([self = shared_from_this(), stopped](HttpLoop &loop) {
    self->stopped_ = true;
    self->cancel_all();
    self->idle_.clear();
    self->protocol_.reset(); /* what it waits for at its end must not hold the loop up */
    loop.keep_connections(-static_cast<long>(self->peer_->concurrency));
    stopped->set_value();
  });
  wait.wait();
}

// ---- the loop's thread ----

void HttpSender::Requests::pump() {
  assert(loop_.is_loop_thread());
  posted_ = false;
  while (!stopped_) {
    const Time now = Clock::now();
    std::optional<HttpGrant> grant;
    if (!may_form(now) || !knows_grant(grant) || !form(now) || !may_start(now))
      return;
    if (!grant || grant->secret) {
      start(now, grant ? std::move(grant->secret) : nullptr);
    } else {
      Requested refused;
      refused.splice(refused.begin(), forming_, forming_.begin());
      end(refused.front(), {{Outcome::SinkDown, std::move(grant->error), OB_REASON_AUTH}});
    }
  }
}

/* Whether a request that is formed now will start: its messages could not be taken back. If not, a connection that
 * becomes free, a timer or the end of a request will call pump(). */
bool HttpSender::Requests::may_form(Time now) {
  if (active_.size() >= peer_->concurrency || (forming_.empty() && !queue_.has_work()) || !has_connection())
    return false;
  const Time next = with_limiter([&](auto &limiter) { return limiter.next(active_.size(), now); });
  if (next > now && next != Time::max())
    pump_at(next);
  return next <= now;
}

/* False while it is not known whether there will be one: poll() looks again. */
bool HttpSender::Requests::knows_grant(std::optional<HttpGrant> &grant) {
  auto is_known = [&] {
    grant = protocol_->grant();
    return !grant || grant->secret || !grant->error.empty();
  };
  if (is_known())
    return true;
  lacks_grant_ = true;
  return is_known(); /* poll() may have come between the two */
}

bool HttpSender::Requests::has_connection() {
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
  return !full;
}

/* Makes the next request as large as it can be. Returns false if there is no message, or if it waits for more. */
bool HttpSender::Requests::form(Time now) {
  if (forming_.empty() && !queue_.has_work())
    return false;
  if (forming_.empty())
    forming_.emplace_back(outages_, now);
  Request &next = forming_.front();
  const std::vector<HttpMessage> &messages = next.content.messages;
  if (!messages.empty() && queue_.has_followers()) /* it has waited for more: some may be here now */
    for (size_t i = 0, n = messages.size(); i < n; i++)
      add_run(next, messages[i].key_hash);
  while (!next.alone && messages.size() < most_) {
    uint64_t serial = 0;
    auto message = queue_.start(false, serial);
    if (!message)
      break;
    const bool goes_along = messages.empty() || fits(next, *message);
    next.alone = !goes_along || message->failed;
    const uint64_t key = message->key_hash;
    Request &request = goes_along ? next : forming_.emplace_back(outages_, now);
    request.alone |= message->failed;
    request.add(serial, std::move(*message));
    add_run(request, key);
  }
  const Time due = next.formed + collects_for_;
  const bool is_full = next.alone || messages.size() >= most_ || next.weight >= most_weight_;
  if (!messages.empty() && !is_full && now < due) {
    pump_at(due);
    return false;
  }
  return !messages.empty();
}

/* Adds the messages that follow the request's last one of the key. */
void HttpSender::Requests::add_run(Request &request, uint64_t key) {
  uint64_t serial = 0;
  auto takes = [&](const HttpMessage &follower) { return fits(request, follower); };
  while (protocol_->carries_runs() && !request.alone && request.content.messages.size() < most_) {
    auto follower = queue_.start_behind(key, takes, serial);
    if (!follower)
      return;
    request.add(serial, std::move(*follower));
  }
}

bool HttpSender::Requests::fits(const Request &request, const HttpMessage &message) const {
  return !message.failed && request.weight + message.weight <= most_weight_;
}

/* Counts the request as started. It is not allowed to although may_form() was true if another process was faster. */
bool HttpSender::Requests::may_start(Time now) {
  Time next = now;
  const bool may = with_limiter([&](auto &limiter) {
    if (limiter.start(active_.size(), now))
      return true;
    next = limiter.next(active_.size(), now);
    return false;
  });
  if (may)
    return true;
  if (next != Time::max())
    pump_at(next);
  if (next - now > longest_wait)
    return_forming("not sent: the rate limit is used up");
  return false;
}

void HttpSender::Requests::start(Time now, std::shared_ptr<const std::string> grant) {
  Request &request = forming_.front();
  active_.splice(active_.begin(), forming_, forming_.begin());
  request.started = now;
  try {
    if (!idle_.empty()) {
      request.transfer = std::move(idle_.back());
      idle_.pop_back();
    } else {
      request.transfer = std::make_unique<HttpTransfer>(peer_, name_, protocol_->url(), peer_->method);
    }
    request.content.grant = std::move(grant);
    request.call = protocol_->call(request.content);
    prepare(*request.transfer, request.content, request.call);
    run(active_.begin());
    return;
  } catch (const std::exception &error) {
    end_all(request, Outcome::Retry, text_unless_memory(error));
  }
  active_.erase(active_.begin());
}

void HttpSender::Requests::run(Requested::iterator request) {
  loop_.start(
      request->transfer->handle(), host_,
      [self = shared_from_this(), request](CURLcode code) { self->done(request, code); }, peer_->timeout,
      peer_->http2);
}

void HttpSender::Requests::done(Requested::iterator request, CURLcode code) {
  assert(loop_.is_loop_thread());
  try {
    request->transfer->ended(code);
    if (request->transfer->needs_new_connection()) {
      run(request);
      return;
    }
    if (peer_->http2 && request->transfer->timed_out(code))
      loop_.end_silent_connection(request->transfer->handle(), *host_, peer_->timeout);
    const HttpVerdict verdict = classify(*request, code);
    const bool pauses_long = obey(*request, verdict);
    end(*request, verdict);
    if (pauses_long)
      shed();
  } catch (const std::exception &error) {
    end_all(*request, Outcome::Retry, text_unless_memory(error));
  }
  keep(std::move(request->transfer));
  active_.erase(request);
  pump();
}

HttpVerdict HttpSender::Requests::classify(Request &request, CURLcode code) {
  const HttpTransfer &transfer = *request.transfer;
  log_refusal(transfer.refusal());
  auto failure = transfer.no_answer(code);
  if (!failure) {
    const std::vector<HttpMessage> &messages = request.content.messages;
    HttpVerdict verdict = protocol_->classify_response(transfer, code, request.content);
    verdict.blames_one |= verdict.each.empty() && verdict.outcome == Outcome::Retry;
    verdict.blames_one &= messages.size() > 1;
    for (size_t i = 0, n = request.ending(verdict); i < n; i++)
      if (verdict.of(i).outcome != Outcome::Sent)
        peer_->history->answered_events.add(messages[i].position);
    shrink(request, verdict);
    if (verdict.refuses_token && is_first_refusal(request))
      return {{Outcome::Returned, "the endpoint has refused the access token: another one is fetched"}};
    return verdict;
  }
  if (failure->no_descriptor)
    loop_.descriptors_ran_out();
  failure->error = protocol_->without_secrets(failure->error, request.content);
  failure->unanswered = transfer.was_requested();
  /* Any one of the messages may break the connection: on a new one it is seen which. A timeout may be an outage, and
   * takes long. */
  std::vector<HttpMessage> &messages = request.content.messages;
  const bool broke = failure->outcome == Outcome::RetryBlameSink || failure->outcome == Outcome::Deferred;
  failure->blames_one = messages.size() > 1 && broke && code != CURLE_OPERATION_TIMEDOUT;
  for (size_t i = 0; failure->blames_one && i < messages.size(); i++)
    messages[i].kept = KeptConnection::NONE;
  return std::move(*failure);
}

/* Whether this refusal of its grant is the first since a success, or of the same one as the first. */
bool HttpSender::Requests::is_first_refusal(const Request &request) {
  const auto &grant = request.content.grant;
  if (!grant || (refused_grant_ && grant != refused_grant_))
    return false;
  refused_grant_ = grant;
  protocol_->refused(grant);
  return true;
}

/* Of messages that are not delivered they are dropped. */
void HttpSender::Requests::keep_acknowledgements(const Request &request) {
  std::vector<std::string> texts = protocol_->acknowledgements(*request.transfer, request.content);
  for (size_t i = 0; i < std::min(texts.size(), request.serials.size()); i++)
    queue_.acknowledged(request.serials[i], std::move(texts[i]));
}

static Verdict behind_a_failure() {
  return {Outcome::Returned, "waits behind a failed event of the same key"};
}

/* Later events of a key are returned in the same call as the failed one, so that none is sent before it. */
void HttpSender::Requests::end(Request &request, const HttpVerdict &verdict) {
  const size_t ends = request.ending(verdict);
  if (verdict.gone)
    gone_ = true;
  assert(verdict.each.empty() || verdict.each.size() == request.serials.size());

  std::vector<uint64_t> sent;
  std::unordered_set<uint64_t> failed_keys;
  SendQueue<HttpMessage>::Failures failures;
  bool halts = verdict.gone;
  for (size_t i = 0; i < ends; i++) {
    const uint64_t serial = request.serials[i], key = request.content.messages[i].key_hash;
    const Verdict &end = verdict.of(i);
    halts |= end.outcome == Outcome::SinkDown;
    if (end.outcome == Outcome::Sent)
      sent.push_back(serial);
    else if (!failed_keys.insert(key).second && key != 0)
      failures.emplace_back(serial, behind_a_failure());
    else if (end.outcome == Outcome::Rejected)
      failures.emplace_back(serial, queue_.refusal(end.error, end.reason));
    else
      failures.emplace_back(serial, end);
  }
  if (ends < request.serials.size())
    request.halve(ends);
  if (ends == 0)
    reporter_->failed(verdict.reason, verdict.unanswered ? request.serials.size() : 0);
  failed_keys.erase(0);
  for (uint64_t serial : request.take_behind(failed_keys))
    failures.emplace_back(serial, behind_a_failure());
  if (request.outage != outages_) /* the one to blame is not looked for any more */
    for (uint64_t serial : request.take_all_behind())
      failures.emplace_back(serial, Verdict{Outcome::Returned, "not sent again: the sink is down"});
  if (!failures.empty())
    queue_.fail(std::move(failures), halts);
  if (!sent.empty()) {
    refused_grant_.reset();
    if (queue_.keeps_acknowledgements())
      keep_acknowledgements(request);
    queue_.succeed(sent);
  }
  if (auto part = request.next_part())
    forming_.emplace_front(request.outage, request.formed, std::move(*part));
}

/* A request of several messages is larger than the peer allows. */
void HttpSender::Requests::shrink(const Request &request, const HttpVerdict &verdict) {
  if (!verdict.blames_one || verdict.reason != OB_REASON_TOO_LARGE || request.weight / 2 >= most_weight_)
    return;
  most_weight_ = std::max<size_t>(request.weight / 2, 1);
  reporter_->log(OB_LOG_WARNING, "the endpoint refuses " + std::to_string(request.serials.size()) +
                                     " events in a request as too large: requests are now at most " +
                                     std::to_string(most_weight_) + " bytes");
}

void HttpSender::Requests::end_all(Request &request, Outcome outcome, const char *error) {
  SendQueue<HttpMessage>::Failures failures;
  for (uint64_t serial : request.serials)
    failures.emplace_back(serial, Verdict{outcome, error});
  for (uint64_t serial : request.take_all_behind())
    failures.emplace_back(serial, Verdict{Outcome::Returned, error});
  queue_.fail(std::move(failures), false);
}

/* Keeps no more idle handles than active ones. */
void HttpSender::Requests::keep(std::unique_ptr<HttpTransfer> transfer) {
  if (idle_.size() <= active_.size())
    idle_.push_back(std::move(transfer));
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

/* A pause or another process keeps them from being sent soon. */
void HttpSender::Requests::return_forming(const char *why) {
  for (Request &waiting : forming_)
    end_all(waiting, Outcome::Returned, why);
  forming_.clear();
}

/* Tells the limiter what the answer asks for. Returns true if that is a pause in which no event is to be held. */
bool HttpSender::Requests::obey(const Request &request, const HttpVerdict &verdict) {
  const Time now = Clock::now();
  const auto pause = std::min(std::chrono::milliseconds(std::max<int64_t>(verdict.pause_ms, 0)), peer_->max_pause);
  bool sent = false;
  for (size_t i = 0; !sent && i < request.serials.size(); i++)
    sent = !verdict.blames_one && verdict.of(i).outcome == Outcome::Sent;
  with_limiter([&](auto &limiter) {
    if (verdict.slow_down)
      limiter.slow_down(request.started, now, verdict.too_many);
    else if (sent)
      limiter.succeeded(active_.size() - 1, now);
    if (pause.count() > 0)
      limiter.pause_until(now + pause);
    if (pause > longest_wait)
      limiter.begin_slowly(now);
  });
  return pause > longest_wait;
}

/* The main thread returns what is queued. */
void HttpSender::Requests::shed() {
  return_forming("not sent: the peer asked for a pause");
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
    if (request.transfer) /* null: there was no memory for it */
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
  or_out_of_memory([&] { requests_->stop(); }); /* the rest ends with the loop */
}

void HttpSender::keep_acknowledgements(bool keep) {
  requests_->queue().keep_acknowledgements(keep);
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
  message.failed = event.failed;
  message.kept = kept_connection_for(event, *history_);
  requests_->queue().push(std::move(message));
  return true;
}

void HttpSender::flush() {
  requests_->flush();
}

void HttpSender::poll() {
  requests_->report_failures();
}

void HttpSender::pause() {
  begin_slowly();
  requests_->begin_outage();
}

void HttpSender::release_queued() {
  requests_->release_queued();
}

void HttpSender::abandon() {
  requests_->abandon();
}

}  // namespace outbox
