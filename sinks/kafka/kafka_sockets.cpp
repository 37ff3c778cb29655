/*
 * kafka_sockets.cpp: sockets are closed here and not by librdkafka, so that a connection is never ended by the number
 * of a socket that has become another file meanwhile.
 */
#include "kafka_sockets.h"

#include <unistd.h>

#include <cerrno>

namespace outbox {

/* Called on the broker's thread, with the broker locked, for each address that is tried: of bootstrap_servers and of
 * what brokers announce alike. */
int KafkaSockets::connect(int socket, const sockaddr *address, int size, const char *broker) noexcept {
  try {
    std::optional<Refusal> refusal;
    if (guard_)
      refusal = guard_->check(address);
    std::lock_guard lock(mutex_);
    refusals_.erase(broker);
    if (hung_up_)
      return ECANCELED;
    if (refusal) {
      refusals_.emplace(broker, std::move(*refusal));
      return EACCES;
    }
    open_[socket] = {std::this_thread::get_id()};
  } catch (...) {
    return ENOMEM; /* not looked at: not connected to */
  }
  return ::connect(socket, address, static_cast<socklen_t>(size)) == 0 || errno == EINPROGRESS ? 0 : errno;
}

int KafkaSockets::close(int socket) noexcept {
  std::lock_guard lock(mutex_);
  open_.erase(socket);
  return ::close(socket);
}

/* shutdown(2) would not do: what the peer sends can be read after it. */
static void disconnect(int socket) {
  constexpr sockaddr from{.sa_family = AF_UNSPEC, .sa_data = {}};
  connect(socket, &from, sizeof from);
}

void KafkaSockets::hang_up() noexcept {
  std::lock_guard lock(mutex_);
  hung_up_ = true;
  for (const auto &[socket, connection] : open_)
    disconnect(socket);
}

bool KafkaSockets::on_stray_answer() noexcept {
  constexpr unsigned most = 1000;
  std::lock_guard lock(mutex_);
  for (auto &[socket, connection] : open_)
    if (connection.thread == std::this_thread::get_id() && ++connection.stray_answers >= most) {
      disconnect(socket);
      return true;
    }
  return false;
}

std::string KafkaSockets::why_refused(std::string_view text) const {
  if (text.find("Failed to connect to broker at") == text.npos)
    return {};
  std::lock_guard lock(mutex_);
  for (const auto &[broker, refusal] : refusals_)
    if (text.find(broker) != text.npos)
      return BrokerGuard::fact(broker, refusal) + ": " + BrokerGuard::hint(refusal.network);
  return {};
}

}  // namespace outbox
