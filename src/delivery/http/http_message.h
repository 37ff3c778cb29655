/* http_message.h: what a protocol makes of events, and of which the sender makes requests. */
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "delivery/http/http_headers.h"
#include "delivery/http/http_peer.h"

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

}  // namespace outbox
