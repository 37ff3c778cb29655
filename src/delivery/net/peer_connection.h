/*
 * peer_connection.h: a transport with a buffer of what is to be sent. The connection of a kind of sink derives from
 * it, and says how connecting goes on and what the bytes mean. Belongs to one thread.
 *
 * A peer may be anything that listens at an address, so what it sends fills no buffer without a bound: a reader keeps
 * only an incomplete part of the protocol, of a size that its kind knows; what the peer asks for goes through
 * answer(); and who reads, reads no more than `reads_in_turn` times before it looks at all else.
 */
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "delivery/net/transport.h"

namespace outbox {

class PeerConnection {
public:
  PeerConnection(const PeerConnection &) = delete;
  PeerConnection &operator=(const PeerConnection &) = delete;

  /* Told of each step of opening that has passed: what is known then, and what could be better; empty: nothing. */
  using Listener = std::function<void(const char *step, std::string fact, std::string hint)>;
  void tell(Listener listener) { listener_ = std::move(listener); }

  const std::string &peer() const { return transport_.peer(); }
  std::string &out() { return out_; }
  size_t unsent() const { return out_.size() - sent_; }
  size_t queued() const { return transport_.queued(); } /* in the socket */
  /* Appends what the peer has asked for, such as a PONG. Throws PeerError if it asks, and does not read. */
  void answer(std::string_view bytes);
  static constexpr int reads_in_turn = 4;
  /* Sends what the socket takes. Returns whether that was anything. */
  bool flush();
  int fd() const { return transport_.fd(); }
  short events() const { return transport_.events(unsent() > 0); }

protected:
  /* The options must outlive it. */
  explicit PeerConnection(const ConnectOptions &options) : transport_(options), options_(options) {}
  ~PeerConnection() = default;

  /* Reads once what the socket has, and gives it to reader.add(). Returns false if that was nothing. */
  template <class Reader> bool receive_into(Reader &reader) {
    const std::string_view bytes = receive_bytes();
    reader.add(bytes);
    return !bytes.empty();
  }

  /* Sends and reads until next() returns true, which takes what reader.add() was given. Throws PeerError or
   * Cancelled.
   */
  template <class Reader, class Next>
  void wait_for(Reader &reader, const Deadline &deadline, const char *step, Next next) {
    for (;;) {
      deadline.check(step, peer());
      flush();
      if (next())
        return;
      if (!receive_into(reader))
        deadline.wait(fd(), events(), step, peer());
    }
  }

  void passed(const char *step, std::string fact, std::string hint = {}) {
    if (listener_)
      listener_(step, std::move(fact), std::move(hint));
  }
  void start_tls(const Deadline &deadline);

  Transport transport_;
  std::string out_;

private:
  std::string_view receive_bytes(); /* valid until the next call */

  const ConnectOptions &options_;
  Listener listener_;
  size_t sent_ = 0;          /* of out_ */
  uint64_t all_sent_ = 0;    /* bytes since the connection was made */
  uint64_t answers_end_ = 0; /* where the last answer ends, counted so */
  size_t answers_ = 0;       /* bytes of answers since the last time that all of them were sent */
  std::string buffer_;
};

}  // namespace outbox
