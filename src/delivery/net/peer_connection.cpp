/* peer_connection.cpp: sent bytes leave the buffer when they are more than half of it, so few are moved. The memory
 * of a large event is freed when it is sent. */
#include "delivery/net/peer_connection.h"

namespace outbox {

static constexpr size_t read_size = 131'072, kept_size = 1'048'576;

bool PeerConnection::flush() {
  bool any = false;
  while (sent_ < out_.size()) {
    size_t n = transport_.send(std::string_view(out_).substr(sent_));
    if (n == 0)
      break;
    sent_ += n;
    any = true;
  }
  if (sent_ == out_.size()) {
    if (out_.capacity() > kept_size)
      std::string().swap(out_); /* clear() and an assignment keep the memory */
    out_.clear();
    sent_ = 0;
  } else if (sent_ > out_.size() / 2) {
    out_.erase(0, sent_);
    sent_ = 0;
  }
  return any;
}

std::string_view PeerConnection::receive_bytes() {
  buffer_.resize(read_size);
  return std::string_view(buffer_).substr(0, transport_.receive(buffer_.data(), buffer_.size()));
}

}  // namespace outbox
