/*
 * webhook_transfer.h: one HTTP request in flight. The handle and its buffers are reused for one request after
 * another. Belongs to the HTTP loop's thread; a probe uses it on its own thread.
 */
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>

#include <curl/curl.h>

#include "delivery/http/http_answer.h"
#include "delivery/http/tls_diagnosis.h"
#include "delivery/sinks/webhook/webhook_config.h"

namespace outbox {

class WebhookTransfer {
public:
  /* `sink` is the server's name, for the ALTER SERVER statement in an error. Throws std::bad_alloc. */
  WebhookTransfer(std::shared_ptr<const WebhookConfig> config, std::string sink);
  WebhookTransfer(const WebhookTransfer &) = delete;
  WebhookTransfer &operator=(const WebhookTransfer &) = delete;

  /* Prepares the handle for this request: adds timestamp and signature. */
  void prepare(WebhookRequest request);
  /* Instead of prepare(): the handle only opens a new connection and sends nothing. */
  void prepare_connect_only(std::chrono::milliseconds timeout);
  /* While the transfer runs: whether TCP is connected. libcurl tells only after TLS. */
  bool connected() const;
  CURL *handle() const { return easy_.get(); }
  /* The network guard's refusal, if that is why nothing was sent; otherwise null. */
  const Refusal *refusal() const { return refusal_ && !socket_allowed_ ? &*refusal_ : nullptr; }
  /* Returns true if the request failed because of a reused idle connection: the peer closed it at that moment
   * (libcurl retries only some of these cases), or it leads to an address that this sink may not use. The handle can
   * then be started again and will open a new connection. */
  bool retry_on_new_connection(CURLcode code);
  /* The result of the transfer that ended with `code`. */
  Verdict verdict(CURLcode code) const;
  /* The detailed cause, if TLS or the network guard is to blame. */
  std::optional<TlsProblem> tls_problem(CURLcode code) const;
  bool refused(CURLcode code) const { return refusal() && code != CURLE_OK; }
  std::string refusal_fact() const;
  /* The status of the proxy's response to CONNECT if it refused the tunnel; otherwise 0. */
  long tunnel_refusal() const;
  std::string refusal_hint() const;
  bool asked_for_client_certificate() const { return tls_.asked_for_client_certificate(); }
  /* Frees the request, so that an idle handle holds no event. */
  void clear() { request_ = WebhookRequest(); }

private:
  struct Cleanup {
    void operator()(CURL *easy) const { curl_easy_cleanup(easy); }
    void operator()(curl_slist *list) const { curl_slist_free_all(list); }
  };

  static curl_socket_t open_socket(void *self, curlsocktype purpose, curl_sockaddr *address);
  static int before_request(void *self, char *remote, char *local, int remote_port, int local_port);
  static size_t on_header(char *data, size_t size, size_t n, void *self);
  static size_t on_body(char *data, size_t size, size_t n, void *self);
  void set_fixed_options();
  void set_proxy();

  template <typename Address> bool may_connect(Address address) noexcept;
  void reset(bool fresh_connection);
  void add_line(const std::string &line);
  Verdict classify(long status, bool whole_body) const;

  std::shared_ptr<const WebhookConfig> config_;
  std::string sink_;
  WebhookRequest request_;
  std::unique_ptr<curl_slist, Cleanup> headers_;
  std::string excerpt_;  // the first bytes of the response's body
  size_t header_bytes_ = 0;
  size_t body_bytes_ = 0;
  bool head_complete_ = false;  // the head of the final response has arrived completely
  bool requested_ = false;      // the request was begun on a connection, so a failure may be the event's fault
  bool socket_wanted_ = false;  // a new connection was attempted; false: an idle one was used
  bool socket_allowed_ = false;
  bool no_descriptor_ = false;              // the process had no descriptor for a socket
  curl_socket_t socket_ = CURL_SOCKET_BAD;  // the last socket that was opened
  std::optional<Refusal> refusal_;
  TlsDiagnosis tls_;
  char error_[CURL_ERROR_SIZE] = "";
  std::unique_ptr<CURL, Cleanup> easy_;  // last member, so that it is destroyed first: it points to the others
};

}  // namespace outbox
