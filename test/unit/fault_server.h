/*
 * fault_server.h: an HTTP server on 127.0.0.1 with real sockets that misbehaves as a test requires. One thread per
 * connection; the handler writes raw bytes.
 */
#pragma once

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <functional>
#include <list>
#include <map>
#include <mutex>
#include <stdexcept>
#include <string>
#include <thread>

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <openssl/ssl.h>

#include "delivery/base/thread.h"

struct HttpRequest {
  std::string line;                            // "POST /path HTTP/1.1"
  std::map<std::string, std::string> headers;  // header names in lower case
  std::string body;
  int connection = 0;  // the number of the connection, from 0
};

class FaultServer {
public:
  class Peer {
  public:
    /* Returns false if the client has gone. */
    bool send(const std::string &bytes) {
      for (size_t at = 0; at < bytes.size();) {
        long n = ssl ? SSL_write(ssl, bytes.data() + at, static_cast<int>(bytes.size() - at))
                     : ::send(fd, bytes.data() + at, bytes.size() - at, MSG_NOSIGNAL);
        if (n <= 0)
          return false;
        at += static_cast<size_t>(n);
      }
      return true;
    }
    bool answer(int status, const std::string &headers = {}, const std::string &body = {}) {
      if (status == 204) /* no body: bytes that arrive anyway would corrupt the connection */
        return send("HTTP/1.1 204 X\r\n" + headers + "\r\n");
      return send("HTTP/1.1 " + std::to_string(status) + " X\r\nContent-Length: " + std::to_string(body.size()) +
                  "\r\n" + headers + "\r\n" + body);
    }
    /* Sends nothing until the client or the test closes the connection. */
    bool hang() {
      char byte;
      (void)recv(fd, &byte, 1, 0);
      return false;
    }
    int fd = -1;
    SSL *ssl = nullptr;
  };
  /* Returns whether the connection is kept. */
  using Handler = std::function<bool(const HttpRequest &, Peer &)>;

  explicit FaultServer(Handler handler, SSL_CTX *tls = nullptr) : handler_(std::move(handler)), tls_(tls) {
    listener_ = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof(address);
    if (bind(listener_, reinterpret_cast<sockaddr *>(&address), size) != 0 || listen(listener_, 1024) != 0 ||
        getsockname(listener_, reinterpret_cast<sockaddr *>(&address), &size) != 0)
      throw std::runtime_error("cannot listen");
    port_ = ntohs(address.sin_port);
    // SIGPIPE, when the client has closed the connection; the other threads inherit this.
    outbox::SignalsBlocked blocked;
    acceptor_ = std::thread([this] { accept_all(); });
  }

  ~FaultServer() {
    stopping_ = true;
    refuse();
    acceptor_.join();
    {
      std::lock_guard lock(mutex_);
      for (int fd : open_)
        shutdown(fd, SHUT_RDWR);
    }
    for (std::thread &thread : threads_)
      thread.join();
    close(listener_);
  }

  /* From now on connections are refused. */
  void refuse() { shutdown(listener_, SHUT_RDWR); }

  int port() const { return port_; }
  std::string url(const std::string &path = "/hook") const {
    return std::string(tls_ ? "https" : "http") + "://127.0.0.1:" + std::to_string(port_) + path;
  }
  int connections() const { return connections_; }
  int requests() const { return requests_; }

private:
  void accept_all() {
    for (;;) {
      int fd = accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
      if (fd < 0 && errno == EMFILE && !stopping_) {  // caused by the test itself
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
        continue;
      }
      if (stopping_ || fd < 0) {
        if (fd >= 0)
          close(fd);
        return;
      }
      std::lock_guard lock(mutex_);
      open_.push_back(fd);
      threads_.emplace_back([this, fd, number = connections_++] { serve(fd, number); });
    }
  }

  void serve(int fd, int number) {
    Peer peer{fd, nullptr};
    if (tls_) {
      peer.ssl = SSL_new(tls_);
      SSL_set_fd(peer.ssl, fd);
    }
    std::string input;
    HttpRequest request;
    if (!peer.ssl || SSL_accept(peer.ssl) == 1)
      while (read_request(peer, input, request)) {
        request.connection = number;
        ++requests_;
        if (!handler_(request, peer))
          break;
      }
    SSL_free(peer.ssl);
    std::lock_guard lock(mutex_);
    open_.remove(fd);
    close(fd);
  }

  static bool more(Peer &peer, std::string &input) {
    char buffer[65536];
    long n = peer.ssl ? SSL_read(peer.ssl, buffer, sizeof(buffer)) : recv(peer.fd, buffer, sizeof(buffer), 0);
    if (n > 0)
      input.append(buffer, static_cast<size_t>(n));
    return n > 0;
  }

  static bool read_request(Peer &peer, std::string &input, HttpRequest &request) {
    size_t end;
    while ((end = input.find("\r\n\r\n")) == std::string::npos)
      if (!more(peer, input))
        return false;
    request = {};
    size_t at = input.find("\r\n");
    request.line = input.substr(0, at);
    while (at < end) {
      size_t next = input.find("\r\n", at + 2);
      std::string line = input.substr(at + 2, next - at - 2);
      size_t colon = line.find(':');
      std::string name = line.substr(0, colon);
      std::transform(name.begin(), name.end(), name.begin(), ::tolower);
      size_t value = line.find_first_not_of(' ', colon + 1);
      std::string &slot = request.headers[name];
      slot += (slot.empty() ? "" : "|") + (value == std::string::npos ? "" : line.substr(value));
      at = next;
    }
    size_t length = request.headers.count("content-length") ? std::stoul(request.headers["content-length"]) : 0;
    input.erase(0, end + 4);
    while (input.size() < length)
      if (!more(peer, input))
        return false;
    request.body = input.substr(0, length);
    input.erase(0, length);
    return true;
  }

  Handler handler_;
  SSL_CTX *tls_;
  int listener_ = -1;
  int port_ = 0;
  std::atomic<bool> stopping_{false};
  std::atomic<int> connections_{0}, requests_{0};
  std::mutex mutex_;  // guards open_ and threads_
  std::list<int> open_;
  std::list<std::thread> threads_;
  std::thread acceptor_;
};

/* A port on which no program listens: bound and reserved. */
struct DeadPort {
  DeadPort() : fd(socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof(address);
    if (bind(fd, reinterpret_cast<sockaddr *>(&address), size) != 0 ||
        getsockname(fd, reinterpret_cast<sockaddr *>(&address), &size) != 0)
      throw std::runtime_error("cannot bind");
    host_port = "127.0.0.1:" + std::to_string(ntohs(address.sin_port));
    url = "http://" + host_port + "/";
  }
  ~DeadPort() { close(fd); }
  int fd;
  std::string host_port, url;
};
