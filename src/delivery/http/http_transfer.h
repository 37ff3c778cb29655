/*
 * http_transfer.h: one HTTP request in flight: an easy handle that knows its peer, the network guard and TLS, and
 * keeps the beginning of the answer. The handle and its buffers are reused for one request after another. Belongs to
 * the HTTP loop's thread; a probe uses it on its own thread.
 */
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <curl/curl.h>

#include "delivery/http/http_answer.h"
#include "delivery/http/http_headers.h"
#include "delivery/http/http_peer.h"
#include "delivery/http/tls_diagnosis.h"

namespace outbox {

class HttpTransfer {
public:
  /* `sink` is the server's name, for the ALTER SERVER statement in an error; `url` is the target of requests that
   * name none. Throws std::bad_alloc. */
  HttpTransfer(std::shared_ptr<const HttpPeer> peer, std::string sink, const std::string &url,
               const std::string &method = "POST");
  HttpTransfer(const HttpTransfer &) = delete;
  HttpTransfer &operator=(const HttpTransfer &) = delete;

  /* Prepares the handle for a request; an empty `url` is that of the constructor. The body must live until the
   * transfer has ended. */
  void prepare(const std::string &url, const HttpHeaders &headers, std::string_view body,
               KeptConnection kept = KeptConnection::FREE, const HttpHeaders &more_headers = {});
  /* Instead of prepare(): the handle only opens a new connection and sends nothing. */
  void prepare_connect_only(std::chrono::milliseconds timeout);
  /* While the transfer runs: whether TCP is connected. libcurl tells only after TLS. */
  bool connected() const;
  CURL *handle() const { return easy_.get(); }

  // ---- after the transfer has ended with `code` ----

  /* To be called once, before the others: notes how the connection has ended. */
  void ended(CURLcode code);
  /* Returns true if no request was sent because the kept connection leads to an address that this sink may not use.
   * The handle can then be started again and will use another connection. */
  bool needs_new_connection();
  /* Why the peer has not answered; nothing if it has. The caller masks secrets. */
  std::optional<HttpVerdict> no_answer(CURLcode code) const;

  /* The server answered before it had the whole request over HTTP/2, and libcurl lost the answer, as 7.88 does. */
  bool answer_lost(CURLcode code) const { return code == CURLE_HTTP2_STREAM && !error_[0]; }

  /* The request was begun on a connection and not answered completely in time. */
  /* The request was begun on a connection. */
  bool was_requested() const { return requested_; }
  bool timed_out(CURLcode code) const { return requested_ && code == CURLE_OPERATION_TIMEDOUT; }

  /* The body of the request. */
  std::string_view sent() const { return sent_; }

  // ---- the answer, if no_answer() is nothing; all of it has arrived if the code is CURLE_OK ----

  long status() const;
  bool is_http2() const;
  /* Its first bytes: at most HttpPeer::kept_body, or OB_ERROR_MAX of an error's if that is more. */
  std::string_view body() const { return body_; }
  bool body_is_cut() const { return encoding_.empty() && body_.size() < body_bytes_; }
  /* Empty if it is absent. Several lines of one field are joined to a list. */
  std::string header(const char *name) const;
  std::string trailer(const char *name) const;
  /* The pause for which the answer asks by Retry-After; -1 if it asks for none. */
  int64_t retry_after_ms() const;

  // ---- why there was none, in parts ----

  /* The network guard's refusal, if that is why nothing was sent; otherwise null. */
  const Refusal *refusal() const { return !refusals_.empty() && !socket_allowed_ ? &refusals_.back() : nullptr; }
  bool refused(CURLcode code) const { return refusal() && code != CURLE_OK; }
  std::string refusal_fact() const;
  std::string refusal_hint() const;
  /* The same for addresses that were refused while another one was tried; empty if there is none. */
  std::string other_refusals() const;
  /* The detailed cause, if TLS is to blame. */
  std::optional<TlsProblem> tls_problem(CURLcode code) const;
  /* The status of the proxy's response to CONNECT if it refused the tunnel; otherwise 0. */
  long tunnel_refusal() const;
  bool asked_for_client_certificate() const { return tls_.asked_for_client_certificate(); }

private:
  struct Cleanup {
    void operator()(CURL *easy) const { curl_easy_cleanup(easy); }
    void operator()(curl_slist *list) const { curl_slist_free_all(list); }
  };

  static curl_socket_t open_socket(void *self, curlsocktype purpose, curl_sockaddr *address);
  /* Is libcurl about to send the request again? It does so up to five times when kept connections break without an
   * answer. The peer may have handled the request, so the next one is another attempt. */
  bool stops_repeat() { return stopped_repeat_ = requested_; }
  static int on_resolve(void *resolver, void *, void *self);
  static int before_request(void *self, char *remote, char *local, int remote_port, int local_port);
  std::string refused_networks() const;
  static size_t on_header(char *data, size_t size, size_t n, void *self);
  static size_t on_body(char *data, size_t size, size_t n, void *self);
  void keep_body(const char *data, size_t bytes);
  void set_fixed_options(const std::string &method);
  void set_proxy();

  template <typename Address> bool may_connect(Address address) noexcept;
  void reset(bool fresh_connection);
  void add_line(const std::string &line);
  std::string field(const char *name, unsigned origin) const;
  void note_keep_alive(std::string_view line);
  void note_encoding(std::string_view value) noexcept;
  bool ends_with_head();
  void note_open_body(CURLcode code);
  bool misses_certificate();
  bool is_lost(CURLcode code) const;
  std::string why_unanswered(CURLcode code) const;

  const std::shared_ptr<const HttpPeer> peer_;
  const std::string sink_, url_;
  const bool single_use_;  // each request has a connection of its own
  std::unique_ptr<curl_slist, Cleanup> headers_;
  std::string_view sent_;
  std::string body_;
  std::string encoding_;  // of a body that is compressed, though that was not asked for; short
  size_t header_bytes_ = 0;
  size_t body_bytes_ = 0;
  bool head_complete_ = false;  // the head of the final response has arrived completely
  bool requested_ = false;      // the request was begun on a connection, so a failure may be the event's fault
  bool socket_wanted_ = false;  // a new connection was attempted; false: a kept one was used
  bool socket_allowed_ = false;
  bool stopped_repeat_ = false;  // libcurl was about to send the request again, and was stopped
  bool lost_ = false;            // the connection broke after the request was begun, without a byte of an answer
  KeptConnection kept_ = KeptConnection::FREE;
  bool hung_up_ = false;                    // the peer closed the connection, and seems to miss a client certificate
  bool no_descriptor_ = false;              // the process had no descriptor for a socket
  curl_socket_t socket_ = CURL_SOCKET_BAD;  // the last socket that was opened
  std::vector<Refusal> refusals_;           // one for each network in which addresses were refused
  TlsDiagnosis tls_;
  char error_[CURL_ERROR_SIZE] = "";
  std::unique_ptr<CURL, Cleanup> easy_;  // last member, so that it is destroyed first: it points to the others
};

}  // namespace outbox
