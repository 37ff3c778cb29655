/*
 * webhook_endpoint.h: what both threads share of a webhook sink. The main thread queues, the HTTP loop's thread
 * sends.
 *
 * A success is reported by the loop's thread at once. A failure keeps its key taken until the main thread has fetched
 * it, together with the followers of that key: so no later event of the key, submitted in between, can slip past the
 * failed one.
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
#include "delivery/sinks/webhook/concurrency_limiter.h"
#include "delivery/sinks/webhook/webhook_config.h"
#include "delivery/sinks/webhook/webhook_transfer.h"

namespace outbox {

/* The loop's tasks keep it alive. */
class Endpoint : public std::enable_shared_from_this<Endpoint> {
public:
  using Time = ConcurrencyLimiter::Time;

  Endpoint(std::string name, std::shared_ptr<const WebhookConfig> config, std::shared_ptr<Reporter> reporter);

  // ---- the main thread ----

  uint32_t credit() const;
  /* With credit 0: when it may have some although nothing ends. */
  Time credit_at() const;
  bool full() const;
  void share(size_t index, size_t of, int64_t *turns);
  void begin_slowly();
  void push(WebhookRequest request);
  void wake(HttpLoop &loop);
  /* Reports the failures since the last call, and gives back what must not overtake them. False: there were none. */
  bool report_failures();
  /* An outage was noticed: the failures of what began before it are no news when it is over. */
  void begin_outage();
  void release_queued(const char *why);
  void abandon(HttpLoop &loop);
  /* After it the reporter is not called any more. */
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

  static void release(const std::vector<WebhookRequest> &requests, const char *why,
                      std::vector<Completion> &completions);

  // ---- the loop's thread ----

  void pump(HttpLoop &loop);
  bool may_start(HttpLoop &loop, Time now);
  void pump_at(HttpLoop &loop, Time when);
  void start(HttpLoop &loop, uint64_t serial, WebhookRequest request);
  void run(HttpLoop &loop, uint64_t serial, std::unique_ptr<WebhookTransfer> transfer);
  void done(HttpLoop &loop, uint64_t serial, CURLcode code);
  void log_refusal(const Refusal *refusal);
  void succeed(uint64_t serial, int64_t pause_ms);
  void fail(uint64_t serial, Verdict verdict);
  using Locked = std::lock_guard<std::mutex>;  // who has one holds mutex_
  void note_pause(const Locked &locked, int64_t pause_ms, Time now);
  void tell_main(const Locked &locked);
  size_t taken() const { return queue_.queued() + queue_.running(); }
  void cancel_abandoned(HttpLoop &loop);

  const std::string name_;
  const std::shared_ptr<const WebhookConfig> config_;
  const std::shared_ptr<Reporter> reporter_;

  mutable std::mutex mutex_;  // guards the next ten; never held while the reporter is called
  ConcurrencyLimiter limiter_;
  KeyedQueue<WebhookRequest> queue_;
  std::map<uint64_t, InFlight> in_flight_;  // by serial: what is under way and not yet answered for
  std::vector<Failure> failures_;           // seen by the loop's thread, not yet fetched by the main thread
  bool halted_ = false;                     // starts nothing until the failures are fetched
  bool sheds_ = false;                      // what waits is given back: it is not sent soon
  bool stalled_ = false;                    // a timer, or room, will start the next one
  bool pump_posted_ = false;
  uint64_t last_serial_ = 0;
  uint64_t outage_ = 0;  // how many there were

  std::atomic<bool> has_news_{false};  // failures_ or sheds_: most sinks have none when they are asked

  std::map<uint64_t, std::unique_ptr<WebhookTransfer>> active_;  // the loop's thread only, as the next
  std::vector<std::unique_ptr<WebhookTransfer>> idle_;
  std::string last_refused_;  // the address, so that each is logged once
  std::shared_ptr<HttpLoop::Sharers> host_;
  Time pump_at_ = Time::max();  // a timer is set for then
  bool waits_for_room_ = false;
};

}  // namespace outbox
