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
#include <string>
#include <vector>

#include "delivery/engine/handover.h"
#include "delivery/http/http_loop.h"
#include "delivery/http/http_peer.h"
#include "delivery/http/http_transfer.h"

namespace outbox {

/* The request that the protocol has made of an event. */
struct HttpMessage {
  std::vector<std::string> parts = {}; /* for the protocol alone */
  size_t weight = 0;                   /* what counts for HttpProtocol::most_weight() */

  /* Set by the sender. */
  uint64_t ticket = 0, key_hash = 0;
  int64_t position = 0;
  KeptConnection kept = KeptConnection::FREE;
  size_t size() const {
    size_t bytes = sizeof(HttpMessage);
    for (const std::string &part : parts)
      bytes += sizeof(std::string) + part.size();
    return bytes;
  }
};

struct HttpCall {
  std::string url = {}; /* empty: HttpProtocol::url() */
  HttpHeaders headers = {};
  std::string body = {};
};

/* Immutable; usually the sink's configuration. */
class HttpProtocol {
public:
  virtual ~HttpProtocol() = default;
  /* The URL of requests that name none; scheme, host and port are those of every request. */
  virtual const std::string &url() const = 0;
  virtual size_t most_messages() const { return 1; } /* in one request */
  virtual size_t most_weight() const { return SIZE_MAX; }

  /* The main thread: must not wait. Throws BadInput for an event that cannot be sent. */
  virtual HttpMessage render(const ob_event &event) const = 0;
  /* The HTTP loop's thread: must not wait. Also for a request that is sent again. */
  virtual HttpCall call(const std::vector<HttpMessage> &messages) const = 0;
  /* The HTTP loop's thread. The peer has answered; all of the answer has arrived if `code` is CURLE_OK. Errors have
   * no secrets. After SinkDown nothing more is sent until the circuit allows it. */
  virtual HttpVerdict classify_response(const HttpTransfer &answer, CURLcode code,
                                        const std::vector<HttpMessage> &messages) const = 0;
  /* The HTTP loop's thread, after classify_response(), where delivered events are kept: a text for each message,
   * which tells a person what the peer has answered. Those of messages that are not delivered are ignored. Empty:
   * there are none.
   */
  virtual std::vector<std::string> acknowledgements(const HttpTransfer & /*answer*/,
                                                    const std::vector<HttpMessage> & /*messages*/) const {
    return {};
  }
};

/*
 * The sink, as the main thread sees it. All work is done by HttpRequests on the loop's thread, which the loop's tasks
 * keep alive.
 *
 * A request without an answer: a refused connection, an unknown name, a failed TLS handshake and the network guard
 * are SinkDown; a connection that breaks after the request was begun, and a timeout, are RetryBlameSink. If it was a
 * kept connection, the first time is Deferred.
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
