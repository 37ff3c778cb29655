/* tls.h: TLS with a peer, and why it fails, in words for a database administrator. Belongs to one thread. */
#pragma once

#include <openssl/ssl.h>

#include <memory>
#include <string>

#include "delivery/net/connect_options.h"
#include "delivery/net/peer_error.h"
#include "delivery/options/pem.h"

namespace outbox {

class Tls {
public:
  /* Throws PeerError if OpenSSL refuses a certificate or a key. */
  Tls(const ConnectOptions &options, const std::string &host, int fd);

  SSL *ssl() const { return ssl_.get(); }
  /* Why the last operation failed; `code` is from SSL_get_error(). */
  PeerError why(int code) const;
  /* Why a handshake with "broker.example port 5671" has not ended in time. */
  PeerError unanswered(const std::string &peer) const;

private:
  std::string right_port() const;
  static int on_certificate(int ok, X509_STORE_CTX *store);
  std::string the_peer() const { return std::string("the ") + words_.noun; }
  template <class T, void (*free)(T *)> struct Free {
    void operator()(T *each) const { free(each); }
  };

  std::unique_ptr<SSL_CTX, Free<SSL_CTX, SSL_CTX_free>> context_;
  std::unique_ptr<SSL, Free<SSL, SSL_free>> ssl_;
  const PeerTexts words_;
  std::string problem_; /* of the peer's certificate */
  bool has_certificate_ = false;
};

}  // namespace outbox
