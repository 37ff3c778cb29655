/*
 * webhook_endpoint.h: the part of a webhook sink that its two threads share: the main thread queues requests, the
 * HTTP loop's thread sends them.
 */
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "delivery/engine/keyed_queue.h"
#include "delivery/engine/sink.h"
#include "delivery/http/http_loop.h"
#include "delivery/http/concurrency_limiter.h"
#include "delivery/sinks/webhook/webhook_config.h"
#include "delivery/sinks/webhook/webhook_transfer.h"

namespace outbox {

/*
 * Two threads. The main thread queues events and fetches failures; the HTTP loop's thread starts transfers and
 * reports successes at once. mutex_ guards what both use, and is never held while reporter_->complete() runs. A
 * failure keeps its key occupied in queue_ until the main thread has fetched it together with the later events of
 * the key: so no later event, submitted in between, can overtake the failed one.
 *
 * How the loop's thread is woken: pump() starts all requests that may start. It runs
 * - as a task that wake() posts after the main thread has queued events or fetched failures; pump_posted_
 *   suppresses a second task;
 * - after every transfer, from done();
 * - by a timer, when limiter_ allows the next request at a known time (pump_at_);
 * - when another endpoint frees a connection (waits_for_connection_);
 * - when the first access token is there, or another one after a refusal (tokens_changed()).
 * pump_scheduled_ says that one of the last three is pending, so that wake() need not post. pump() clears
 * pump_posted_ and pump_scheduled_ under mutex_ before it reads the queue: an event that is queued later posts
 * again. So whenever a request may start, a pump() is pending or a transfer is in flight.
 *
 * How the main thread is woken: failures_, halted_ and shedding_ are set under mutex_ together with has_news_ and
 * reporter_->wake(). report_failures() clears has_news_ before it locks, so news that arrive later set it again.
 * While halted_ or shedding_ is set, pump() starts nothing; report_failures() clears them and the sink calls
 * wake().
 *
 * The loop's tasks hold a reference to the endpoint.
 */
class Endpoint : public std::enable_shared_from_this<Endpoint> {
public:
  using Time = ConcurrencyLimiter::Time;

  Endpoint(std::string name, std::shared_ptr<const WebhookConfig> config, std::shared_ptr<Reporter> reporter);

  /* The source of access tokens, if the sink uses some. Call it before push(); `tokens` must live until stop() has
   * returned. */
  void use_tokens(Renewed<OauthToken> *tokens) { tokens_ = tokens; }
  /* There is a token, or the reason why there is none. Any thread. */
  void tokens_changed(HttpLoop &loop);

  // ---- the main thread ----

  uint32_t credit() const;
  /* With credit 0: when it may become positive although no request ends. */
  Time credit_at() const;
  bool full() const;
  void share(size_t index, size_t of, int64_t *rate_clock);
  void keep_acknowledgements(bool keep) { keeps_acknowledgements_ = keep; }
  void begin_slowly();
  Time paused_until() const;
  void end_pause(HttpLoop &loop);
  void push(WebhookRequest request);
  void wake(HttpLoop &loop);
  /* Reports the failures since the last call, and returns the events that must not overtake them. Returns false if
   * there were none. */
  bool report_failures();
  /* The circuit has opened: failures of requests that were started before are returned without an attempt. */
  void begin_outage();
  void release_queued(const char *why);
  void abandon(HttpLoop &loop);
  /* Waits for the loop's thread. Afterwards the reporter is not called any more. */
  void stop(HttpLoop &loop);

private:
  struct InFlight {
    uint64_t ticket, key, outage;
    Time started;
  };
  struct Failure {
    Completion completion;
    bool gone;
  };

  static void release(const KeyedQueue<WebhookRequest>::Items &requests, const char *why,
                      std::vector<Completion> &completions);
  std::unique_lock<std::mutex> lock_with_room(std::vector<Completion> &completions);

  // ---- the loop's thread ----

  void pump(HttpLoop &loop);
  bool may_start(HttpLoop &loop, Time now);
  void pump_at(HttpLoop &loop, Time when);
  void start(HttpLoop &loop, uint64_t serial, WebhookRequest request);
  void run(HttpLoop &loop, uint64_t serial, std::unique_ptr<WebhookTransfer> transfer);
  void done(HttpLoop &loop, uint64_t serial, CURLcode code);
  bool renew_token(const WebhookTransfer &transfer, CURLcode code);
  void log_refusal(const Refusal *refusal);
  void succeed(uint64_t serial, int64_t pause_ms, std::string acknowledgement);
  void fail(uint64_t serial, HttpVerdict verdict);
  using Locked = std::lock_guard<std::mutex>;  // proves that the caller holds mutex_
  void note_pause(const Locked &locked, int64_t pause_ms, Time now);
  void wake_main(const Locked &locked);
  size_t load() const { return queue_.queued() + queue_.running(); }
  void cancel_abandoned(HttpLoop &loop);

  const std::string name_;
  const std::shared_ptr<const WebhookConfig> config_;
  const std::shared_ptr<Reporter> reporter_;

  mutable std::mutex mutex_;  // guards the members down to outage_
  ConcurrencyLimiter limiter_;
  KeyedQueue<WebhookRequest> queue_;
  std::map<uint64_t, InFlight> in_flight_;  // by serial: requests on the wire whose end is not yet handled
  // Found by the loop's thread, not yet fetched by the main thread; has capacity for all of in_flight_.
  std::vector<Failure> failures_;
  bool halted_ = false;          // start nothing until the failures are fetched
  bool shedding_ = false;        // queued events are returned, because a long pause was asked for
  bool pump_scheduled_ = false;  // a timer or a free connection will call pump()
  bool pump_posted_ = false;
  uint64_t last_serial_ = 0;
  uint64_t outage_ = 0;  // number of outages so far

  std::atomic<bool> keeps_acknowledgements_{false};
  std::atomic<bool> has_news_{
      false};  // failures_ or shedding_ changed; atomic, so that the common "nothing" needs no lock

  std::map<uint64_t, std::unique_ptr<WebhookTransfer>> active_;  // from here on: the loop's thread only
  std::vector<std::unique_ptr<WebhookTransfer>> idle_;
  Renewed<OauthToken> *tokens_ = nullptr;            // null: the sink uses none
  std::shared_ptr<const OauthToken> refused_token_;  // by 401, since the last success; another one was fetched
  std::string last_refused_;                         // the last refused address, so that it is logged once
  std::shared_ptr<HttpLoop::QuotaGroup> host_;
  Time pump_at_ = Time::max();  // when the timer fires; max() = no timer
  bool waits_for_connection_ = false;
};

}  // namespace outbox
