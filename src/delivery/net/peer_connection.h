/*
 * peer_connection.h: a transport with a buffer of what is to be sent. The connection of a kind of sink derives from
 * it, and says how connecting goes on and what the bytes mean. Belongs to one thread.
 */
#pragma once

#include <string>
#include <string_view>

#include "delivery/net/transport.h"

namespace outbox {

class PeerConnection {
public:
  PeerConnection(const PeerConnection &) = delete;
  PeerConnection &operator=(const PeerConnection &) = delete;

  const std::string &peer() const { return transport_.peer(); }
  std::string &out() { return out_; }
  size_t unsent() const { return out_.size() - sent_; }
  size_t queued() const { return transport_.queued(); } /* in the socket */
  /* Sends what the socket takes. Returns whether that was anything. */
  bool flush();
  int fd() const { return transport_.fd(); }
  short events() const { return transport_.events(unsent() > 0); }

protected:
  /* The options must outlive it. */
  explicit PeerConnection(const ConnectOptions &options) : transport_(options) {}
  ~PeerConnection() = default;

  /* Reads once what the socket has, and gives it to reader.add(). Returns false if that was nothing. */
  template <class Reader> bool receive_into(Reader &reader) {
    const std::string_view bytes = receive_bytes();
    reader.add(bytes);
    return !bytes.empty();
  }

  Transport transport_;
  std::string out_;

private:
  std::string_view receive_bytes(); /* valid until the next call */

  size_t sent_ = 0; /* of out_ */
  std::string buffer_;
};

}  // namespace outbox
