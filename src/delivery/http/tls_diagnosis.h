/*
 * tls_diagnosis.h: explains to a database administrator why TLS with an HTTP endpoint fails. libcurl reports what
 * it saw ("certificate verify failed"); this adds the cause, with names and dates of the certificate, and what to
 * do.
 */
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include <curl/curl.h>

namespace outbox {

struct TlsProblem {
  std::string message; /* the fact */
  std::string hint;    /* the next step */
  /* Both in one text, for a sink's last error. */
  std::string text() const { return "TLS failed: " + message + ". " + hint; }
};

/* Belongs to one easy handle, and so to one thread at a time. */
class TlsDiagnosis {
public:
  /* Observes the handle's TLS handshakes from now on, without influencing them. Uses the handle's CURLOPT_PRIVATE.
   * Must outlive the handle. */
  void attach(CURL *easy);
  /* Call it before each start of the handle. */
  void clear() { handshake_.reset(); }

  /* Whether the peer of the last new connection asked for a client certificate. */
  bool asked_for_client_certificate() const;
  /* Whether the peer of the last new connection has told by an alert that it does not accept the client. */
  bool refused_by_alert() const;
  /* Explains a transfer that ended without a response, if TLS is the cause. `text` is libcurl's error text.
   * `hung_up`: a connection that the peer closed without an alert is taken to have missed a client certificate. */
  std::optional<TlsProblem> explain(CURLcode code, std::string_view text, bool has_client_certificate,
                                    bool hung_up = false) const;

  /* The same for a transfer that has timed out before its request: nothing unless a handshake had begun. */
  std::optional<TlsProblem> explain_silence(std::string_view text) const;

  struct Handshake; /* what the callbacks saw of one handshake */

private:
  static CURLcode on_context(CURL *easy, void *context, void *);
  TlsProblem why_certificate(std::string_view text) const;

  std::shared_ptr<Handshake> handshake_; /* shared with the connection, which may outlive this transfer */
};

}  // namespace outbox
