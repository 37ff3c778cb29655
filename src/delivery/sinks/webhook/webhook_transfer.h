/*
 * webhook_transfer.h: one POST on the wire. The handle and its buffers serve one request after another. Belongs to
 * the HTTP loop's thread.
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
  /* `sink` is the server's name, for the ALTER SERVER that an error shows. Throws std::bad_alloc. */
  WebhookTransfer(std::shared_ptr<const WebhookConfig> config, std::string sink);
  WebhookTransfer(const WebhookTransfer &) = delete;
  WebhookTransfer &operator=(const WebhookTransfer &) = delete;

  /* Makes the handle ready to be started: stamps and signs the request. */
  void prepare(WebhookRequest request);
  /* Instead: the handle then connects, on a connection of its own, and sends nothing. */
  void prepare_connect_only(std::chrono::milliseconds timeout);
  /* While it runs: does the connection stand, with TLS still to come? libcurl tells only when all of it is over. */
  bool connected() const;
  CURL *handle() const { return easy_.get(); }
  /* Why nothing was sent, when the network guard said so. */
  const Refusal *refusal() const { return refusal_ && !socket_allowed_ ? &*refusal_ : nullptr; }
  /* True when it failed because of an idle connection, kept for reuse: the peer closed it in that very moment
   * (libcurl helps itself in some of these cases), or it leads where another sink may go and this one may not. The
   * handle is then ready to be started again, on a new connection. */
  bool retry_on_new_connection(CURLcode code);
  /* What the end of the transfer means. */
  Verdict verdict(CURLcode code) const;
  /* Why it failed, seen closer, where TLS or the network guard is the reason. */
  std::optional<TlsProblem> tls_problem(CURLcode code) const;
  bool refused(CURLcode code) const { return refusal() && code != CURLE_OK; }
  std::string refusal_fact() const;
  /* The proxy's answer to CONNECT, where it makes no tunnel; else 0. */
  long tunnel_refusal() const;
  std::string refusal_hint() const;
  bool asked_for_client_certificate() const { return tls_.asked_for_client_certificate(); }
  /* An idle handle keeps no event. */
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
  Verdict judge(long status, bool whole_body) const;

  std::shared_ptr<const WebhookConfig> config_;
  std::string sink_;
  WebhookRequest request_;
  std::unique_ptr<curl_slist, Cleanup> headers_;
  std::string excerpt_;  // the first bytes of the answer's body
  size_t header_bytes_ = 0;
  size_t body_bytes_ = 0;
  bool head_complete_ = false;  // of the final answer
  bool requested_ = false;      // a connection stood and the request began: what fails now may be the event's doing
  bool socket_wanted_ = false;  // a new connection was begun, and not an idle one used
  bool socket_allowed_ = false;
  bool no_descriptor_ = false;              // for a socket: the process has too many
  curl_socket_t socket_ = CURL_SOCKET_BAD;  // the last that was opened
  std::optional<Refusal> refusal_;
  TlsDiagnosis tls_;
  char error_[CURL_ERROR_SIZE] = "";
  std::unique_ptr<CURL, Cleanup> easy_;  // last, so that it goes first: it points at the others
};

}  // namespace outbox
