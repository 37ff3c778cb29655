/*
 * http_sender.h: a sink made of an HttpProtocol: it sends messages by HTTP requests, on the HTTP loop's thread. A
 * request carries one message or several, of different keys, or also runs of a key in their order; several requests
 * are in flight at once. Messages collect while all requests are in flight, so requests become larger under load, and
 * no message waits for others unless the protocol says so.
 * How many requests may run, and how often one may start, is the limiter's decision (concurrency_limiter.h).
 */
#pragma once

#include <atomic>
#include <functional>
#include <list>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "delivery/engine/send_queue.h"
#include "delivery/http/http_loop.h"
#include "delivery/http/http_message.h"
#include "delivery/http/http_peer.h"
#include "delivery/http/http_transfer.h"

namespace outbox {

/* Prepares a transfer: URL and headers are those of the first message. Content and call must live until it has
 * ended. */
void prepare(HttpTransfer &transfer, const HttpContent &content, const HttpCall &call);

/* A kind of sink on HTTP: its messages, and what answers mean. Functions that may be called while requests run must
 * not wait. */
class HttpProtocol {
public:
  virtual ~HttpProtocol() = default;
  /* The URL of requests that name none; scheme, host and port are those of every request. */
  virtual const std::string &url() const = 0;
  virtual size_t most_messages() const { return 1; } /* in one request */
  virtual size_t most_weight() const { return SIZE_MAX; }
  /* Whether a request may carry several messages of a key: its answer is then one for all messages. */
  virtual bool carries_runs() const { return false; }
  /* So long, from its first message on, a request that could carry more waits for them. */
  virtual std::chrono::milliseconds collects_for() const { return std::chrono::milliseconds(0); }

  /* The main thread. Throws BadInput for an event that cannot be sent. */
  virtual HttpMessage render(const ob_event &event) const = 0;

  // ---- the HTTP loop's thread ----

  /* Nothing: requests carry none. Without a secret nothing is sent: after an error the next message ends as SinkDown;
   * without one, the sender asks again after Reporter::wake(). */
  virtual std::optional<HttpGrant> grant() const { return {}; }
  /* The peer has refused it, for the first time since a success: it is to be renewed. */
  virtual void refused(const std::shared_ptr<const std::string> & /*grant*/) const {}
  /* For each attempt. */
  virtual HttpCall call(const HttpContent &content) const = 0;
  /* The peer has answered; all of the answer has arrived if `code` is CURLE_OK. Errors have no secrets. After
   * SinkDown nothing more is sent until the circuit allows it. */
  virtual HttpVerdict classify_response(const HttpTransfer &answer, CURLcode code,
                                        const HttpContent &content) const = 0;
  /* After classify_response(), where delivered events are kept: a text for each message, which tells a person what
   * the peer has answered. Those of messages that are not delivered are ignored. Empty: there are none. */
  virtual std::vector<std::string> acknowledgements(const HttpTransfer & /*answer*/,
                                                    const HttpContent & /*content*/) const {
    return {};
  }
  /* Masks in a text what nobody may read of the sink and of this request. `cut`: the text was truncated. */
  virtual std::string without_secrets(std::string_view text, const HttpContent &content, bool cut = false) const = 0;
};

/*
 * The sink, as the main thread sees it. All work is done by Requests on the loop's thread, which the loop's tasks
 * keep alive.
 *
 * A request without an answer: a refused connection, an unknown name, a failed TLS handshake and the network guard
 * are SinkDown; a connection that breaks after the request was begun, and a timeout, are RetryBlameSink. If it was a
 * kept connection, the first time is Deferred.
 *
 * Where one answer, or none, is for several messages, any one of them may be to blame: after an answer that refuses
 * messages (Outcome::Retry) and after a broken connection they are sent again, half of them at a time, one request
 * after the other, until the one is found, and the others spend no attempt. After RetryBlameSink, an outage perhaps,
 * the first message ends so, and only the others are sent again: so each request that fails counts once. Once the
 * circuit is open they are returned. A message whose last delivery failed is sent alone. After 413 requests become
 * smaller.
 *
 * After HTTP 410 the sink is disabled. A grant may be withdrawn before it ends: messages that were sent with one that
 * was refused are returned without an attempt, and what the peer says about the next one counts.
 */
class HttpSender final : public Sink {
public:
  /* `name` is the server's. Both pointers may be to the same object. */
  HttpSender(const std::string &name, const std::shared_ptr<const HttpPeer> &peer,
             std::shared_ptr<const HttpProtocol> protocol, std::shared_ptr<Reporter> reporter);
  ~HttpSender() override; /* waits for the loop's thread; nothing is reported afterwards */

  void keep_acknowledgements(bool keep) override;
  uint32_t credit() const override;
  Time credit_at() const override;
  void share(size_t index, size_t of, int64_t *rate_clock) override;
  void begin_slowly() override;
  Time paused_until() const override;
  void end_pause() override;
  Submitted submit(const ob_event &event) override;
  void flush() override;
  void poll() override;
  void pause() override;
  void release_queued() override;
  void abandon() override;

private:
  class Requests;

  const std::shared_ptr<const HttpProtocol> protocol_;
  const std::shared_ptr<PeerHistory> history_;
  const std::shared_ptr<HttpLoop> loop_; /* destroyed last: the loop's tasks must not own the loop */
  const std::shared_ptr<Requests> requests_;
};

}  // namespace outbox
