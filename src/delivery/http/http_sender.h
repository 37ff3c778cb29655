/*
 * http_sender.h: a sink made of an HttpProtocol: it sends messages by HTTP requests, on the HTTP loop's thread. A
 * request carries one message or several, always of different keys; several requests are in flight at once. Messages
 * collect while all requests are in flight, so requests become larger under load, and no message waits for others.
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
#include "delivery/http/http_peer.h"
#include "delivery/http/http_transfer.h"

namespace outbox {

/* The request that the protocol has made of an event, or what it needs of it for a request with several messages. */
struct HttpMessage {
  std::string url = {}; /* empty: HttpProtocol::url() */
  HttpHeaders headers = {};
  std::string body = {};
  std::vector<std::string> parts = {}; /* for the protocol alone */
  size_t weight = 0;                   /* what counts for HttpProtocol::most_weight() */

  /* Set by the sender. */
  uint64_t ticket = 0, key_hash = 0;
  int64_t position = 0;
  bool failed = false; /* its last delivery: it may be to blame for what happened to others, and is sent alone */
  KeptConnection kept = KeptConnection::FREE;
  size_t size() const;
};

/* A secret that is granted for a time, such as an access token, and goes with each request; or why there is none. */
struct HttpGrant {
  std::shared_ptr<const std::string> secret = {}; /* null: there is none */
  std::string error = {};                         /* empty: it is not known yet whether there will be one */
};

/* The messages of a request, and the grant that goes with them. */
struct HttpContent {
  std::vector<HttpMessage> messages = {};
  std::shared_ptr<const std::string> grant = {}; /* null: HttpProtocol::grant() is nothing */
};

/* Each attempt adds these to its request: headers, such as a signature, and the body if it is not that of the only
 * message. */
struct HttpCall {
  HttpHeaders headers = {};
  std::string body = {};
};

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
 * kept connection, the first time is Deferred. Of several messages that broke a connection each is sent again in a
 * request of its own, and so is each message whose last delivery failed.
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
