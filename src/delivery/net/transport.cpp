/*
 * transport.cpp: the socket never blocks. The kernel gives a connection up when the peer's machine has acknowledged
 * nothing for 60 s; a peer that hangs while its machine answers must be found by missing answers.
 */
#include "delivery/net/transport.h"

#include <fcntl.h>
#include <linux/sockios.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <openssl/err.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <system_error>

namespace outbox {

using std::chrono::milliseconds;

struct Transport::Addresses {
  addrinfo *first = nullptr;
  Addresses() = default;
  ~Addresses() {
    if (first)
      freeaddrinfo(first);
  }
  Addresses(const Addresses &) = delete;
};

static std::string reason_of(int error) {
  return std::generic_category().message(error);
}

static PeerError unanswered(const char *step, const std::string &peer) {
  return {step, OB_REASON_TIMEOUT, peer + " takes the connection and gives no answer in time",
          "is this its port, and is option tls as that port wants it? Option connect_timeout is the limit"};
}

void Deadline::check(const char *step, const std::string &peer) const {
  if (cancelled_())
    throw Cancelled();
  if (Clock::now() >= deadline_)
    throw unanswered(step, peer);
}

void Deadline::wait(int fd, short events, const char *step, const std::string &peer) const {
  if (!wait_ready(fd, events))
    throw unanswered(step, peer);
}

/* In slices, so that a cancellation is seen soon. */
bool Deadline::wait_ready(int fd, short events) const {
  constexpr milliseconds slice{20};
  for (;;) {
    pollfd ready{fd, events, 0};
    if (cancelled_())
      throw Cancelled();
    if (Clock::now() >= deadline_)
      return false;
    int n = poll(&ready, 1, static_cast<int>(slice.count()));
    if (n > 0)
      return true;
    if (n < 0 && errno != EINTR)
      throw PeerError("connect", OB_REASON_OTHER, "poll() failed: " + reason_of(errno));
  }
}

Transport::~Transport() {
  tls_.reset();
  if (fd_ >= 0)
    close(fd_);
}

void Transport::resolve(const Host &host) {
  addrinfo wanted{};
  wanted.ai_family = AF_UNSPEC;
  wanted.ai_socktype = SOCK_STREAM;
  wanted.ai_flags = AI_NUMERICSERV;
  host_ = host;
  peer_ = host.name + " port " + host.port;
  addresses_ = std::make_shared<Addresses>();
  int error = getaddrinfo(host.name.c_str(), host.port.c_str(), &wanted, &addresses_->first);
  if (error == EAI_MEMORY)
    throw std::bad_alloc();
  if (error != 0)
    throw PeerError("resolve", OB_REASON_DNS,
                    "host name \"" + host.name + "\" cannot be resolved (" + gai_strerror(error) + ")",
                    "correct it in option hosts, or check the name resolution of the database server");
}

void Transport::connect_to(const void *address_, const Deadline &deadline) {
  const auto &address = *static_cast<const addrinfo *>(address_);
  if (fd_ >= 0)
    close(fd_);
  fd_ = socket(address.ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, address.ai_protocol);
  auto failed = [this](int error) {
    return PeerError("connect", error == ETIMEDOUT ? OB_REASON_TIMEOUT : OB_REASON_CONNECTION,
                     "could not connect to " + peer_ + ": " + reason_of(error),
                     error == ECONNREFUSED
                         ? "is the " + std::string(options_.words.noun) + " running, and is this its port?"
                         : "");
  };
  if (fd_ < 0)
    throw failed(errno);
  int one = 1, milliseconds_unacknowledged = 60'000;
  setsockopt(fd_, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
  setsockopt(fd_, SOL_SOCKET, SO_KEEPALIVE, &one, sizeof one);
  setsockopt(fd_, IPPROTO_TCP, TCP_USER_TIMEOUT, &milliseconds_unacknowledged, sizeof milliseconds_unacknowledged);
  if (::connect(fd_, address.ai_addr, address.ai_addrlen) == 0)
    return;
  if (errno != EINPROGRESS)
    throw failed(errno);
  if (!deadline.wait_ready(fd_, POLLOUT))
    throw PeerError(
        "connect", OB_REASON_TIMEOUT, "could not connect to " + peer_ + ": no answer in time",
        "is it running, is this its port, and does a firewall drop packets? Option connect_timeout is the "
        "limit");
  int error = 0;
  socklen_t size = sizeof error;
  if (getsockopt(fd_, SOL_SOCKET, SO_ERROR, &error, &size) != 0)
    error = errno;
  if (error != 0)
    throw failed(error);
}

std::optional<Refusal> Transport::refused(const void *address) const {
  return options_.guard ? options_.guard->check(static_cast<const addrinfo *>(address)->ai_addr) : std::nullopt;
}

static std::string networks_of(const std::vector<Refusal> &refusals) {
  std::string networks;
  for (const Refusal &refusal : refusals)
    if (networks.find(refusal.network) == networks.npos)
      networks.append(networks.empty() ? "" : ", ").append(refusal.network);
  return networks;
}

/* The guard is asked before there is a socket, so that nobody learns from an answer, or from its time, whether a port
 * is open there. */
void Transport::connect(const Deadline &deadline) {
  std::optional<PeerError> error;
  std::vector<Refusal> refusals;
  for (const addrinfo *address = addresses_->first; address; address = address->ai_next) {
    if (auto refusal = refused(address)) {
      refusals.push_back(std::move(*refusal));
      continue;
    }
    try {
      connect_to(address, deadline);
      addresses_.reset();
      return;
    } catch (const PeerError &failed) {
      error.emplace(failed);
    }
  }
  if (refusals.empty())
    throw PeerError(*error); /* getaddrinfo() gives one address at least */
  const std::string fact = BrokerGuard::fact(host_.name, refusals.front()),
                    hint = BrokerGuard::hint(networks_of(refusals));
  if (!error)
    throw PeerError("connect", OB_REASON_BLOCKED, fact, hint);
  throw PeerError(error->step, error->reason, error->what(),
                  error->hint + (error->hint.empty() ? "" : " ") + fact + ", and was not tried: " + hint);
}

void Transport::start_tls(const Deadline &deadline) {
  tls_ = std::make_unique<Tls>(options_, host_.name, fd_);
  for (;;) {
    ERR_clear_error();
    int result = SSL_connect(tls_->ssl());
    if (result == 1)
      return;
    tls_result(result);
    if (!deadline.wait_ready(fd_, tls_wants_write_ ? POLLOUT : POLLIN))
      throw tls_->unanswered(peer_);
  }
}

short Transport::events(bool unsent) const {
  return static_cast<short>(POLLIN | (unsent || tls_wants_write_ ? POLLOUT : 0));
}

/* Returns 0 if the socket would block. */
size_t Transport::tls_result(int result) {
  if (result > 0)
    return static_cast<size_t>(result);
  int code = SSL_get_error(tls_->ssl(), result);
  tls_wants_write_ = code == SSL_ERROR_WANT_WRITE;
  if (code == SSL_ERROR_WANT_READ || code == SSL_ERROR_WANT_WRITE)
    return 0;
  if (code == SSL_ERROR_ZERO_RETURN || (code == SSL_ERROR_SYSCALL && SSL_is_init_finished(tls_->ssl())))
    throw lost();
  throw tls_->why(code);
}

/* A peer that hangs up before its first word is perhaps another one, or wants TLS. */
PeerError Transport::lost(const std::string &why) const {
  return {"connect", OB_REASON_CONNECTION,
          "the connection to " + peer_ + " was lost" + (heard_ ? "" : " before a first answer") +
              (why.empty() ? "" : ": " + why),
          heard_ ? "" : "is this its port, and is option tls as that port wants it?"};
}

size_t Transport::receive(char *into, size_t room) {
  if (tls_) {
    ERR_clear_error();
    size_t bytes = tls_result(SSL_read(tls_->ssl(), into, static_cast<int>(std::min<size_t>(room, INT_MAX))));
    heard_ |= bytes > 0;
    return bytes;
  }
  ssize_t n = recv(fd_, into, room, 0);
  heard_ |= n > 0;
  if (n > 0)
    return static_cast<size_t>(n);
  if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR))
    return 0;
  throw lost(n == 0 ? "closed by the " + std::string(options_.words.noun) : reason_of(errno));
}

size_t Transport::send(std::string_view bytes) {
  if (tls_) {
    ERR_clear_error();
    return tls_result(
        SSL_write(tls_->ssl(), bytes.data(), static_cast<int>(std::min<size_t>(bytes.size(), INT_MAX))));
  }
  ssize_t n = ::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
  if (n >= 0)
    return static_cast<size_t>(n);
  if (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR)
    return 0;
  throw lost(reason_of(errno));
}

size_t Transport::queued() const {
  int bytes = 0;
  return ioctl(fd_, SIOCOUTQ, &bytes) == 0 ? static_cast<size_t>(bytes) : 0;
}

}  // namespace outbox
