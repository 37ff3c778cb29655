/* server.cpp: libmicrohttpd's callbacks, each of which runs on the thread of its connection. */
#include "server.h"

#include <arpa/inet.h>
#include <microhttpd.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <cstring>
#include <stdexcept>

namespace console {

void Deadlines::set(int socket, Clock::duration from_now) {
  const std::lock_guard guard(lock_);
  by_socket_[socket] = Clock::now() + from_now;
}

void Deadlines::remove(int socket) {
  const std::lock_guard guard(lock_);
  by_socket_.erase(socket);
}

/* The thread of the connection then sees its end. A socket is removed before libmicrohttpd closes it, so the number
 * is still that of this connection. */
void Deadlines::cut_late(Clock::time_point now) {
  const std::lock_guard guard(lock_);
  for (auto &[socket, deadline] : by_socket_)
    if (deadline < now)
      shutdown(socket, SHUT_RDWR);
}

/* A request whose bytes are still coming. */
struct Server::Reading {
  Request request;
  size_t form_bytes = 0;
  std::unique_ptr<MHD_PostProcessor, MHD_Result (*)(MHD_PostProcessor *)> form{nullptr, MHD_destroy_post_processor};
};

static std::string lower(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(),
                 [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; });
  return text;
}

static int socket_of(MHD_Connection *connection) {
  const MHD_ConnectionInfo *info = MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CONNECTION_FD);
  return info ? info->connect_fd : -1;
}

static std::string peer_of(MHD_Connection *connection) {
  const MHD_ConnectionInfo *info = MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CLIENT_ADDRESS);
  char text[NI_MAXHOST] = "";
  if (info && info->client_addr)
    getnameinfo(info->client_addr,
                info->client_addr->sa_family == AF_INET6 ? sizeof(sockaddr_in6) : sizeof(sockaddr_in), text,
                sizeof(text), nullptr, 0, NI_NUMERICHOST);
  return text;
}

/* An answer whose end is not known when it begins. */
struct Stream {
  std::string text;
  size_t sent = 0;
  std::function<bool(std::string &)> more;
  bool has_more = true;

  static ssize_t read(void *self, uint64_t, char *to, size_t size) try {
    auto &stream = *static_cast<Stream *>(self);
    while (stream.sent == stream.text.size()) {
      if (!stream.has_more)
        return MHD_CONTENT_READER_END_OF_STREAM;
      stream.text.clear();
      stream.sent = 0;
      stream.has_more = stream.more(stream.text);
    }
    const size_t n = std::min(size, stream.text.size() - stream.sent);
    stream.text.copy(to, n, stream.sent);
    stream.sent += n;
    return static_cast<ssize_t>(n);
  } catch (...) {
    return MHD_CONTENT_READER_END_WITH_ERROR;
  }
  static void end(void *self) { delete static_cast<Stream *>(self); }
};

static MHD_Response *streamed(const Response &response) {
  auto *stream = new Stream{.text = response.body, .more = response.more};
  MHD_Response *made = MHD_create_response_from_callback(MHD_SIZE_UNKNOWN, 4096, Stream::read, stream, Stream::end);
  if (!made)
    delete stream;
  return made;
}

static MHD_Result answer(MHD_Connection *connection, const Response &response) {
  const std::unique_ptr<MHD_Response, void (*)(MHD_Response *)> made(
      response.more ? streamed(response)
                    : MHD_create_response_from_buffer(response.body.size(), const_cast<char *>(response.body.data()),
                                                      MHD_RESPMEM_MUST_COPY),
      MHD_destroy_response);
  if (!made)
    return MHD_NO;
  const auto add = [&](const char *name, const std::string &value) {
    MHD_add_response_header(made.get(), name, value.c_str());
  };
  add("Content-Type", response.type);
  add("Content-Security-Policy",
      "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; "
      "form-action 'self'; frame-ancestors 'none'; base-uri 'none'");
  add("X-Content-Type-Options", "nosniff");
  add("Referrer-Policy", "same-origin"); /* without it browsers say "Origin: null" with a form */
  add("Cross-Origin-Opener-Policy", "same-origin");
  add("Cross-Origin-Resource-Policy", "same-origin");
  add("Cache-Control", response.may_be_cached ? "max-age=3600" : "no-store");
  for (const auto &[name, value] : response.headers)
    add(name.c_str(), value);
  if (response.status >= 400)
    add("Connection", "close");
  return MHD_queue_response(connection, response.status, made.get());
}

/* C functions: nothing may be thrown out of them. */
struct Callbacks {
  static MHD_Result add_value(void *map, MHD_ValueKind kind, const char *name, size_t name_size, const char *value,
                              size_t value_size) {
    auto &values = *static_cast<std::map<std::string, std::string, std::less<>> *>(map);
    std::string key(name, name_size);
    std::string text(value ? value : "", value ? value_size : 0);
    if (kind == MHD_HEADER_KIND)
      key = lower(std::move(key));
    /* A repeated header is a list, as HTTP says: none that stands alone has this value. */
    if (const auto found = values.find(key); found != values.end() && kind == MHD_HEADER_KIND)
      text = found->second + ", " + text;
    values.insert_or_assign(std::move(key), std::move(text));
    return MHD_YES;
  }

  static MHD_Result add_field(void *reading, MHD_ValueKind, const char *name, const char *, const char *,
                              const char *, const char *value, uint64_t offset, size_t size) {
    auto &form = static_cast<Server::Reading *>(reading)->request.form;
    if (offset == 0)
      form[name].clear();
    form[name].append(value, size);
    return MHD_YES;
  }

  static void *begin_request(void *self, const char *, MHD_Connection *connection) {
    static_cast<Server *>(self)->deadlines_.set(socket_of(connection), Server::request_limit);
    return nullptr;
  }

  /* The first call has the headers; the last one has no more bytes of the form. */
  static MHD_Result handle(void *self, MHD_Connection *connection, const char *path, const char *method, const char *,
                           const char *data, size_t *size, void **kept) try {
    auto &server = *static_cast<Server *>(self);
    auto *reading = static_cast<Server::Reading *>(*kept);
    if (reading == nullptr) {
      reading = new Server::Reading;
      *kept = reading;
      return begin(connection, path, method, *reading);
    }
    if (*size > 0) {
      reading->form_bytes += *size;
      if (reading->form_bytes > Server::most_form_bytes)
        return MHD_NO; /* it has said a smaller length, or none */
      if (reading->form && MHD_post_process(reading->form.get(), data, *size) != MHD_YES)
        return MHD_NO;
      *size = 0;
      return MHD_YES;
    }
    server.deadlines_.set(socket_of(connection), Server::answer_limit);
    /* Its timer would count the time that the handler takes. Setting it again starts it anew. */
    MHD_set_connection_option(connection, MHD_CONNECTION_OPTION_TIMEOUT, 0U);
    const Response response = server.handler_(reading->request);
    if (response.more)
      server.deadlines_.set(socket_of(connection), Server::stream_limit);
    else
      MHD_set_connection_option(connection, MHD_CONNECTION_OPTION_TIMEOUT,
                                static_cast<unsigned>(Server::request_limit.count()));
    return answer(connection, response);
  } catch (...) {
    return MHD_NO;
  }

  static MHD_Result begin(MHD_Connection *connection, const char *path, const char *method,
                          Server::Reading &reading) {
    Request &request = reading.request;
    request.method = method;
    request.path = path;
    request.peer = peer_of(connection);
    MHD_get_connection_values_n(connection, MHD_HEADER_KIND, add_value, &request.headers);
    MHD_get_connection_values_n(connection, MHD_GET_ARGUMENT_KIND, add_value, &request.query);
    MHD_get_connection_values_n(connection, MHD_COOKIE_KIND, add_value, &request.cookies);
    const bool is_post = request.method == "POST";
    if (!is_post && request.method != "GET" && request.method != "HEAD")
      return answer(connection, plain_text(405, "only GET, HEAD and POST are answered"));
    /* What two programs could read in two ways. */
    if (!request.header("transfer-encoding").empty())
      return answer(connection, plain_text(400, "a form comes with its length"));
    const std::string length(request.header("content-length"));
    if (length.find_first_not_of("0123456789") != std::string::npos)
      return answer(connection, plain_text(400, "the form has several lengths"));
    if (!length.empty() && (length.size() > 9 || std::strtoul(length.c_str(), nullptr, 10) > Server::most_form_bytes))
      return answer(connection, plain_text(413, "the form is too long"));
    if (!is_post && !length.empty() && length != "0")
      return answer(connection, plain_text(400, "only a POST has a body"));
    if (is_post) {
      if (!request.header("content-type").starts_with("application/x-www-form-urlencoded"))
        return answer(connection, plain_text(415, "only forms are read"));
      reading.form.reset(MHD_create_post_processor(connection, 4096, add_field, &reading));
      if (!reading.form)
        return MHD_NO;
    }
    return MHD_YES;
  }

  static void end_request(void *self, MHD_Connection *connection, void **kept, MHD_RequestTerminationCode) {
    /* libmicrohttpd ends it after request_limit without a byte; the first line of a next request may come until then.
     */
    static_cast<Server *>(self)->deadlines_.set(socket_of(connection),
                                                Server::request_limit + std::chrono::seconds(5));
    delete static_cast<Server::Reading *>(*kept);
    *kept = nullptr;
  }

  static void on_connection(void *self, MHD_Connection *connection, void **, MHD_ConnectionNotificationCode code) {
    auto &deadlines = static_cast<Server *>(self)->deadlines_;
    if (code == MHD_CONNECTION_NOTIFY_STARTED)
      deadlines.set(socket_of(connection), Server::request_limit);
    else
      deadlines.remove(socket_of(connection));
  }
};

static sockaddr_storage address_of(const Listen &listen) {
  sockaddr_storage address{};
  auto *v4 = reinterpret_cast<sockaddr_in *>(&address);
  auto *v6 = reinterpret_cast<sockaddr_in6 *>(&address);
  if (inet_pton(AF_INET, listen.address.c_str(), &v4->sin_addr) == 1) {
    v4->sin_family = AF_INET;
    v4->sin_port = htons(listen.port);
  } else if (inet_pton(AF_INET6, listen.address.c_str(), &v6->sin6_addr) == 1) {
    v6->sin6_family = AF_INET6;
    v6->sin6_port = htons(listen.port);
  } else {
    throw std::runtime_error("\"" + listen.address + "\" is no address to listen on; write it in digits");
  }
  return address;
}

Server::Server(const Listen &listen, bool is_behind_proxy, Handler handler, std::function<void()> tick)
    : handler_(std::move(handler)), tick_(std::move(tick)), daemon_(nullptr, MHD_stop_daemon) {
  sockaddr_storage address = address_of(listen);
  unsigned flags = MHD_USE_INTERNAL_POLLING_THREAD | MHD_USE_THREAD_PER_CONNECTION | MHD_USE_POLL;
  if (address.ss_family == AF_INET6)
    flags |= MHD_USE_IPv6;
  std::vector<MHD_OptionItem> options{
      {MHD_OPTION_CONNECTION_LIMIT, most_connections, nullptr},
      {MHD_OPTION_CONNECTION_TIMEOUT, request_limit.count(), nullptr},
      {MHD_OPTION_CONNECTION_MEMORY_LIMIT, most_header_bytes, nullptr},
      {MHD_OPTION_STRICT_FOR_CLIENT, 1, nullptr},
      {MHD_OPTION_THREAD_STACK_SIZE, stack_bytes, nullptr},
      {MHD_OPTION_SOCK_ADDR, 0, &address},
  };
  if (!is_behind_proxy)
    options.push_back({MHD_OPTION_PER_IP_CONNECTION_LIMIT, most_of_one_address, nullptr});
  if (!listen.certificate.empty()) {
    flags |= MHD_USE_TLS;
    options.push_back({MHD_OPTION_HTTPS_MEM_CERT, 0, const_cast<char *>(listen.certificate.c_str())});
    options.push_back({MHD_OPTION_HTTPS_MEM_KEY, 0, const_cast<char *>(listen.key.c_str())});
  }
  options.push_back({MHD_OPTION_END, 0, nullptr});
  daemon_.reset(MHD_start_daemon(flags, listen.port, nullptr, nullptr, Callbacks::handle, this, MHD_OPTION_ARRAY,
                                 options.data(), MHD_OPTION_NOTIFY_COMPLETED, Callbacks::end_request, this,
                                 MHD_OPTION_NOTIFY_CONNECTION, Callbacks::on_connection, this,
                                 MHD_OPTION_URI_LOG_CALLBACK, Callbacks::begin_request, this, MHD_OPTION_END));
  if (!daemon_)
    throw std::runtime_error("cannot listen on " + listen.address + ", port " + std::to_string(listen.port) +
                             (listen.certificate.empty() ? "" : ", or cannot use certificate and key") + ": " +
                             std::strerror(errno));
  const MHD_DaemonInfo *info = MHD_get_daemon_info(daemon_.get(), MHD_DAEMON_INFO_BIND_PORT);
  port_ = info ? info->port : listen.port;
  janitor_ = std::thread([this] {
    std::unique_lock held(lock_);
    while (!ending_.wait_for(held, std::chrono::seconds(1), [this] { return ends_; })) {
      deadlines_.cut_late(Deadlines::Clock::now());
      tick_();
    }
  });
}

Server::~Server() {
  {
    const std::lock_guard guard(lock_);
    ends_ = true;
  }
  ending_.notify_all();
  janitor_.join();
  daemon_.reset();
}

}  // namespace console
