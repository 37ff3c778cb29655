/*
 * tls_diagnosis.h: why TLS with an HTTP endpoint fails, in words that a database administrator can act on. libcurl
 * tells what it saw ("certificate verify failed"); this adds what is behind it, with names and dates from the
 * certificate, and what is to be done.
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
  /* Both in one text, as a sink's last error. */
  std::string text() const { return "TLS failed: " + message + ". " + hint; }
};

/* Of one handle, and like it of one thread at a time. */
class TlsDiagnosis {
public:
  /* From now on looks on at the handle's handshakes, whose outcome it leaves alone. The handle's CURLOPT_PRIVATE is
   * taken. Must outlive the handle. */
  void attach(CURL *easy);
  /* Before the handle starts. */
  void clear() { handshake_.reset(); }

  /* Did the peer of the last new connection ask for a client certificate? */
  bool asked_for_client_certificate() const;
  /* What ended the transfer, which had no answer, when it is TLS. `text` is libcurl's. */
  std::optional<TlsProblem> explain(CURLcode code, std::string_view text, bool has_client_certificate) const;

  struct Handshake; /* what was seen of one */

private:
  static CURLcode on_context(CURL *easy, void *context, void *);
  TlsProblem why_certificate(std::string_view text) const;

  std::shared_ptr<Handshake> handshake_; /* shared with the connection, which may outlive the handle's use of it */
};

}  // namespace outbox
