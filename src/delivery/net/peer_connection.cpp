/* peer_connection.cpp: sent bytes leave the buffer when they are more than half of it, so few are moved. The memory
 * of a large event is freed when it is sent. */
#include "delivery/net/peer_connection.h"

namespace outbox {

static constexpr size_t read_size = 131'072, kept_size = 1'048'576;
static constexpr size_t most_answers = 65'536;

void PeerConnection::answer(std::string_view bytes) {
  if (answers_ + bytes.size() > most_answers)
    throw PeerError("connect", OB_REASON_BROKER,
                    std::string("the ") + options_.words.noun + " " + peer() + " asks for more than " +
                        std::to_string(most_answers) + " bytes of answers, and does not read them");
  out_ += bytes;
  answers_ += bytes.size();
  answers_end_ = all_sent_ + unsent();
}

void PeerConnection::start_tls(const Deadline &deadline) {
  const std::string noun = options_.words.noun;
  transport_.start_tls(deadline);
  if (options_.verify)
    passed("TLS", "the " + noun + "'s certificate is accepted");
  else
    passed("TLS", "encrypted, and the " + noun + "'s certificate is not verified",
           "Leave out enable_ssl_certificate_verification.");
}

bool PeerConnection::flush() {
  bool any = false;
  while (sent_ < out_.size()) {
    size_t n = transport_.send(std::string_view(out_).substr(sent_));
    if (n == 0)
      break;
    sent_ += n;
    all_sent_ += n;
    any = true;
  }
  if (all_sent_ >= answers_end_)
    answers_ = 0;
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
