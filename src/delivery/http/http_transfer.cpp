/*
 * http_transfer.cpp: one easy handle with its buffers, used for one request after another. Names are resolved
 * again after 2 s, so that a resolver's wrong answer does not stay for libcurl's default of one minute.
 */
#include "delivery/http/http_transfer.h"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <ctime>
#include <new>
#include <system_error>
#include <utility>

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include "delivery/base/descriptors.h"
#include "delivery/base/out_of_memory.h"
#include "delivery/http/http_wait.h"

namespace outbox {
namespace {

// The body is read up to here so that the connection can be reused; longer ones are cut.
constexpr size_t max_body = 64 * 1024;
constexpr size_t max_http2_body = 4 * 1024 * 1024 + max_body;  // the largest answer that gRPC's clients take
// A body that is slower than this for so long after its head is cut, too: it is read for the connection's sake.
constexpr long slow_body_per_s = 16 * 1024, slow_body_s = 1;
constexpr int next_open_bodies = 100;
constexpr long buffer_bytes = 16 * 1024;   // per request in flight, of which there can be hundreds
constexpr size_t max_headers = 64 * 1024;  // libcurl stores all headers
constexpr long max_connect_ms = 10'000;    // an address that does not respond within this counts as down
constexpr long dns_cache_s = 2;            // a resolver's wrong answer is used for at most this long
/* Then a new connection is opened: a busy one would otherwise never use the name's new address. */
static constexpr long longest_life_s = 60;
constexpr size_t shown_hint = 380;  // the length that views and probes show: the statement must fit
constexpr int64_t scarcity_pause_ms = 1000;

/* A quoted SQL identifier; always quoted, because it may be a keyword. */
std::string quote_identifier(const std::string &name) {
  std::string quoted = "\"";
  for (char c : name)
    quoted.append(c == '"' ? 2 : 1, c);
  return quoted + '"';
}

template <typename Value> void set(CURL *easy, CURLoption option, Value value) {
  if (CURLcode code = curl_easy_setopt(easy, option, value); code != CURLE_OK)
    throw std::runtime_error(std::string("libcurl refused an option: ") + curl_easy_strerror(code));
}

/* The text must outlive the handle. */
void set_blob(CURL *easy, CURLoption option, const std::string &text) {
  curl_blob blob{const_cast<char *>(text.data()), text.size(), CURL_BLOB_NOCOPY};
  set(easy, option, &blob);
}

bool is_https(const std::string &url) {
  return same_name(std::string_view(url).substr(0, 6), "https:");
}

/* Before 8.0.0 (curl #10634) libcurl begins HTTP/2 anew on a connection without TLS that it uses again. */
bool reuses_plain_http2() {
  constexpr unsigned fixed = 0x080000;
  return curl_version_info(CURLVERSION_NOW)->version_num >= fixed;
}

/* Of a sink's own authorities, only those count. Otherwise the system's file is enough (keep_authorities()). */
void set_authorities(CURL *easy, const std::string &own, CURLoption blob, CURLoption folder) {
  if (!own.empty())
    set_blob(easy, blob, own);
  if (!own.empty() || curl_version_info(CURLVERSION_NOW)->cainfo)
    set(easy, folder, static_cast<char *>(nullptr));
}

/* libcurl (7.87 and later) reads the system's file of authorities once and keeps it, unless a folder is set too: then
 * each new connection reads it again, which takes the only HTTP thread 20 ms and more. */
void keep_authorities(CURL *easy) {
#if LIBCURL_VERSION_NUM >= 0x075700
  constexpr long kept_s = 600;                                     // after a change of the file
  (void)curl_easy_setopt(easy, CURLOPT_CA_CACHE_TIMEOUT, kept_s);  // an older library runs without it
#else
  (void)easy;
#endif
}

}  // namespace

HttpTransfer::HttpTransfer(std::shared_ptr<const HttpPeer> peer, std::string sink, const std::string &url,
                           const std::string &method)
    : peer_(std::move(peer)), sink_(std::move(sink)), url_(url),
      single_use_(peer_->http2 && !is_https(url_) && !reuses_plain_http2()), easy_(curl_easy_init()) {
  if (!easy_)
    throw std::bad_alloc();
  set_fixed_options(method);
}

void HttpTransfer::set_fixed_options(const std::string &method) {
  CURL *easy = easy_.get();
  set(easy, CURLOPT_URL, url_.c_str());
  set(easy, CURLOPT_PROTOCOLS_STR, is_https(url_) ? "https" : "http");
  set(easy, CURLOPT_FOLLOWLOCATION, 0L);
  set_proxy();
  set(easy, CURLOPT_NOSIGNAL, 1L);
  set(easy, CURLOPT_QUICK_EXIT, 1L);  // a slow resolver must not block the loop
  set(easy, CURLOPT_DNS_CACHE_TIMEOUT, dns_cache_s);
  set(easy, CURLOPT_MAXLIFETIME_CONN, longest_life_s);
  const long http2 = is_https(url_) ? CURL_HTTP_VERSION_2TLS : CURL_HTTP_VERSION_2_PRIOR_KNOWLEDGE;
  set(easy, CURLOPT_HTTP_VERSION, peer_->http2 ? http2 : static_cast<long>(CURL_HTTP_VERSION_1_1));
  set(easy, CURLOPT_PIPEWAIT, peer_->http2 && !single_use_ ? 1L : 0L);
  set(easy, CURLOPT_FORBID_REUSE, single_use_ ? 1L : 0L);
  set(easy, CURLOPT_SSLVERSION, static_cast<long>(CURL_SSLVERSION_TLSv1_2));
  set(easy, CURLOPT_TCP_KEEPALIVE, 1L);
  set(easy, CURLOPT_TIMEOUT_MS, static_cast<long>(peer_->timeout.count()));
  set(easy, CURLOPT_CONNECTTIMEOUT_MS, std::min(static_cast<long>(peer_->timeout.count()), max_connect_ms));
  set(easy, CURLOPT_POST, 1L);
  if (method != "POST")  // the request still has a body
    set(easy, CURLOPT_CUSTOMREQUEST, method.c_str());
  set(easy, CURLOPT_UPLOAD_BUFFERSIZE, buffer_bytes);
  set(easy, CURLOPT_BUFFERSIZE, buffer_bytes);
  set(easy, CURLOPT_ERRORBUFFER, error_);
  set(easy, CURLOPT_OPENSOCKETFUNCTION, &HttpTransfer::open_socket);
  set(easy, CURLOPT_OPENSOCKETDATA, this);
  set(easy, CURLOPT_RESOLVER_START_FUNCTION, &HttpTransfer::on_resolve);
  set(easy, CURLOPT_RESOLVER_START_DATA, this);
  set(easy, CURLOPT_PREREQFUNCTION, &HttpTransfer::before_request);
  set(easy, CURLOPT_PREREQDATA, this);
  set(easy, CURLOPT_HEADERFUNCTION, &HttpTransfer::on_header);
  set(easy, CURLOPT_HEADERDATA, this);
  set(easy, CURLOPT_WRITEFUNCTION, &HttpTransfer::on_body);
  set(easy, CURLOPT_WRITEDATA, this);
  tls_.attach(easy);
  keep_authorities(easy);
  set_authorities(easy, peer_->ca_pem, CURLOPT_CAINFO_BLOB, CURLOPT_CAPATH);
  if (const ClientCertificate &client = peer_->client; client.is_given()) {
    set_blob(easy, CURLOPT_SSLCERT_BLOB, client.certificate_pem);
    set_blob(easy, CURLOPT_SSLKEY_BLOB, client.key_pem);
    set(easy, CURLOPT_KEYPASSWD, "");  // without it OpenSSL might ask at a terminal
  }
}

void HttpTransfer::set_proxy() {
  CURL *easy = easy_.get();
  const HttpProxy &proxy = peer_->proxy;
  set(easy, CURLOPT_PROXY, proxy.url.c_str());  // empty: no proxy, even if the environment names one
  set(easy, CURLOPT_NOPROXY, proxy.is_used() ? "" : "*");
  if (!proxy.is_used())
    return;
  set(easy, CURLOPT_PROXYTYPE, static_cast<long>(proxy.is_https() ? CURLPROXY_HTTPS : CURLPROXY_HTTP));
  set(easy, CURLOPT_PROXY_SSLVERSION, static_cast<long>(CURL_SSLVERSION_TLSv1_2));
  set(easy, CURLOPT_SUPPRESS_CONNECT_HEADERS, 1L);
  if (!proxy.username.empty()) {
    set(easy, CURLOPT_PROXYAUTH, static_cast<long>(CURLAUTH_BASIC));
    set(easy, CURLOPT_PROXYUSERNAME, proxy.username.c_str());
    set(easy, CURLOPT_PROXYPASSWORD, proxy.password.c_str());
  }
  set_authorities(easy, peer_->ca_pem, CURLOPT_PROXY_CAINFO_BLOB, CURLOPT_PROXY_CAPATH);
}

void HttpTransfer::add_line(const std::string &line) {
  curl_slist *longer = curl_slist_append(headers_.get(), line.c_str());
  if (!longer)
    throw std::bad_alloc();
  (void)headers_.release();
  headers_.reset(longer);
}

void HttpTransfer::prepare(const std::string &url, const HttpHeaders &headers, std::string_view body,
                           KeptConnection kept, const HttpHeaders &more_headers) {
  reset(kept == KeptConnection::NONE && !peer_->http2);  // the requests of a broken HTTP/2 connection share a new one
  kept_ = kept;
  set(handle(), CURLOPT_MAXAGE_CONN, peer_->history->kept_s.load());

  headers_.reset();
  add_line("Expect:");  // do not wait for "100 Continue" before a large body
  if (!find_header(headers, "Content-Type") && !find_header(more_headers, "Content-Type"))
    add_line("Content-Type:");  // otherwise libcurl adds its default
  for (const HttpHeaders *each : {&headers, &more_headers})
    for (auto &[name, value] : *each)
      add_line(header_line(name, value));
  set(handle(), CURLOPT_HTTPHEADER, headers_.get());
  if (!url.empty())
    set(handle(), CURLOPT_URL, url.c_str());
  sent_ = body;
  set(handle(), CURLOPT_POSTFIELDSIZE_LARGE, static_cast<curl_off_t>(body.size()));
  set(handle(), CURLOPT_POSTFIELDS, body.data()); /* NOLINT(bugprone-suspicious-stringview-data-usage): with a size */
}

void HttpTransfer::prepare_connect_only(std::chrono::milliseconds timeout) {
  reset(true);
  set(handle(), CURLOPT_CONNECT_ONLY, 1L);
  set(handle(), CURLOPT_TIMEOUT_MS, static_cast<long>(timeout.count()));
}

bool HttpTransfer::connected() const {
  sockaddr_storage peer;
  socklen_t size = sizeof peer;
  return socket_ != CURL_SOCKET_BAD && getpeername(socket_, reinterpret_cast<sockaddr *>(&peer), &size) == 0;
}

void HttpTransfer::reset(bool fresh_connection) {
  body_.clear();
  header_bytes_ = body_bytes_ = 0;
  head_complete_ = requested_ = socket_wanted_ = socket_allowed_ = no_descriptor_ = false;
  stopped_repeat_ = hung_up_ = lost_ = false;
  refusals_.clear();
  tls_.clear();
  error_[0] = '\0';
  encoding_.clear();
  set(handle(), CURLOPT_LOW_SPEED_LIMIT, 0L);
  set(handle(), CURLOPT_FRESH_CONNECT, fresh_connection || single_use_ ? 1L : 0L);
}

/* A peer that insists on a client certificate closes the connection after an alert, which a reset may overtake. Until
 * it has answered a request, a closed connection is therefore held against the missing certificate; but not many
 * times without an alert, because an event may be the cause that comes first each time. */
bool HttpTransfer::misses_certificate() {
  constexpr int most_hang_ups = 5;
  PeerHistory &history = *peer_->history;
  if (header_bytes_ > 0)
    history.answered = true;
  if (tls_.refused_by_alert())
    history.hang_ups = 0;
  bool closed = lost_ && !tls_.refused_by_alert();
  if (!closed || history.answered || !tls_.asked_for_client_certificate() || peer_->client.is_given())
    return false;
  return history.hang_ups++ < most_hang_ups;
}

bool HttpTransfer::is_lost(CURLcode code) const {
  return requested_ && header_bytes_ == 0 &&
         (code == CURLE_SEND_ERROR || code == CURLE_RECV_ERROR || code == CURLE_GOT_NOTHING ||
          (code == CURLE_HTTP2 && peer_->http2) || stopped_repeat_);
}

/* One answer of so many is read to its end, to see whether the peer still leaves bodies open. */
void HttpTransfer::note_open_body(CURLcode code) {
  if (head_complete_ && code == CURLE_OPERATION_TIMEDOUT && peer_->head_suffices)
    peer_->history->open_bodies = next_open_bodies;
}

void HttpTransfer::ended(CURLcode code) {
  note_open_body(code);
  lost_ = is_lost(code);
  hung_up_ = misses_certificate();
}

bool HttpTransfer::needs_new_connection() {
  if (socket_wanted_ || refusal() == nullptr)
    return false;
  reset(true);
  return true;
}

/* Checks one address; a name with several addresses is checked for each. */
template <typename Address> bool HttpTransfer::may_connect(Address address) noexcept {
  try {
    auto refusal = peer_->proxy.refused_target ? peer_->proxy.refused_target : peer_->guard.check(address);
    if (!refusal)
      return true;
    if (std::none_of(refusals_.begin(), refusals_.end(),
                     [&](const Refusal &other) { return other.network == refusal->network; }))
      refusals_.push_back(std::move(*refusal));
  } catch (...) {
  }
  return false;
}

int HttpTransfer::on_resolve(void *, void *, void *self) {
  return static_cast<HttpTransfer *>(self)->stops_repeat() ? 1 : 0;
}

/* Checks the address of the actual connection: after an earlier check a name could resolve to another address. */
curl_socket_t HttpTransfer::open_socket(void *self, curlsocktype, curl_sockaddr *address) {
  auto *transfer = static_cast<HttpTransfer *>(self);
  if (transfer->stops_repeat())
    return CURL_SOCKET_BAD;
  transfer->socket_wanted_ = true;
  if (!transfer->may_connect(&address->addr))
    return CURL_SOCKET_BAD;
  transfer->socket_allowed_ = true;
  transfer->socket_ = socket(address->family, address->socktype | SOCK_CLOEXEC, address->protocol);
  transfer->no_descriptor_ = transfer->socket_ == CURL_SOCKET_BAD && (errno == EMFILE || errno == ENFILE);
  if (transfer->socket_ != CURL_SOCKET_BAD && is_for_the_server(transfer->socket_)) {
    close(std::exchange(transfer->socket_, CURL_SOCKET_BAD));
    transfer->no_descriptor_ = true;
  }
  const int milliseconds_unacknowledged = 60'000;
  setsockopt(transfer->socket_, IPPROTO_TCP, TCP_USER_TIMEOUT, &milliseconds_unacknowledged,
             sizeof milliseconds_unacknowledged);
  return transfer->socket_;
}

/* Checks a reused connection, which may have been opened by a sink with other permissions. */
int HttpTransfer::before_request(void *self, char *remote, char *, int, int) {
  auto *transfer = static_cast<HttpTransfer *>(self);
  if (transfer->stops_repeat())
    return CURL_PREREQFUNC_ABORT;
  if (!transfer->may_connect<const char *>(remote)) {
    transfer->socket_allowed_ = false;
    return CURL_PREREQFUNC_ABORT;
  }
  transfer->requested_ = true;
  return CURL_PREREQFUNC_OK;
}

/* "Keep-Alive: timeout=5": the time counts for the peer from its answer on, so a second is left for the way. */
void HttpTransfer::note_keep_alive(std::string_view line) {
  constexpr std::string_view parameter = "timeout=";
  constexpr long most_s = 118, rounded_down_s = 1, margin_s = 1;
  long timeout_s = 0;
  if (size_t at = line.find(parameter); at != line.npos)
    std::from_chars(line.data() + at + parameter.size(), line.data() + line.size(), timeout_s);
  if (timeout_s > 0)
    peer_->history->kept_s = std::clamp(timeout_s - rounded_down_s - margin_s, 1L, most_s);
}

/* Detects a complete head. libcurl takes a connection that ends within the head for a response without a body. The
 * head ends with a blank line, unless it is that of an interim response. libcurl 8.23 also passes on a last line that
 * was cut after its CR. */
size_t HttpTransfer::on_header(char *data, size_t size, size_t n, void *self) {
  auto *transfer = static_cast<HttpTransfer *>(self);
  transfer->header_bytes_ += size * n;
  const std::string_view line(data, size * n);
  constexpr std::string_view keep_alive = "keep-alive:", encoding = "content-encoding:";
  if (same_name(line.substr(0, keep_alive.size()), keep_alive))
    transfer->note_keep_alive(line);
  if (same_name(line.substr(0, encoding.size()), encoding))
    transfer->note_encoding(line.substr(encoding.size()));
  if ((line == "\r\n" || line == "\n") && transfer->status() >= 200) {
    transfer->head_complete_ = true;
    if (transfer->ends_with_head())
      return 0;
  }
  return transfer->header_bytes_ > max_headers ? 0 : size * n;
}

/* Only a name that is short enough takes no memory. */
void HttpTransfer::note_encoding(std::string_view value) noexcept {
  constexpr std::string_view letters = "abcdefghijklmnopqrstuvwxyz";
  const size_t begin = std::min(value.find_first_of(letters), value.size());
  std::string_view name = value.substr(begin, value.substr(begin).find_first_not_of(letters));
  constexpr size_t longest = 8;
  if (name != "identity")
    encoding_ = name.size() <= longest ? name : "an unknown one";
}

/* True: the rest of the answer is not waited for. */
bool HttpTransfer::ends_with_head() {
  if (!peer_->head_suffices)
    return false;
  std::atomic<int> &open_bodies = peer_->history->open_bodies;
  if (status() < 300 && open_bodies > 0) {
    --open_bodies;
    return true;
  }
  (void)curl_easy_setopt(handle(), CURLOPT_LOW_SPEED_LIMIT, slow_body_per_s);
  (void)curl_easy_setopt(handle(), CURLOPT_LOW_SPEED_TIME, slow_body_s);
  return false;
}

void HttpTransfer::keep_body(const char *data, size_t bytes) {
  const size_t kept = status() >= 300 ? std::max<size_t>(peer_->kept_body, OB_ERROR_MAX) : peer_->kept_body;
  body_.append(data, std::min(bytes, kept - body_.size()));
}

/* Over HTTP/2 a longer body is read, too: its trailers can hold the verdict, as those of gRPC do. */
size_t HttpTransfer::on_body(char *data, size_t size, size_t n, void *self) {
  auto *transfer = static_cast<HttpTransfer *>(self);
  size_t bytes = size * n;
  or_out_of_memory([&] {
    if (transfer->encoding_.empty())
      transfer->keep_body(data, bytes);
    else if (transfer->body_.empty())
      transfer->body_ = "(a body in the encoding " + transfer->encoding_ + ", which was not asked for)";
  });
  transfer->body_bytes_ += bytes;
  const HttpPeer &peer = *transfer->peer_;
  return transfer->body_bytes_ > std::max(peer.http2 ? max_http2_body : max_body, peer.kept_body) ? 0 : bytes;
}

/* Without the address: an error must not reveal to its readers how names resolve inside the network. */
std::string HttpTransfer::refusal_fact() const {
  bool of_proxy = peer_->proxy.is_used() && !peer_->proxy.refused_target;
  return std::string(of_proxy ? "The proxy" : "The url's host") + " has an address that " + refusals_.back().reason;
}

std::string HttpTransfer::other_refusals() const {
  return refusals_.empty() || !socket_allowed_ ? std::string()
                                               : ". " + refusal_fact() + ", and was not tried. " + refusal_hint();
}

/* Names resolve to several addresses, and those in all the networks are tried: the hint names them at once. */
std::string HttpTransfer::refused_networks() const {
  std::string list;
  for (const Refusal &refusal : refusals_)
    list.append(list.empty() ? "" : ", ").append(refusal.network);
  return list;
}

std::string HttpTransfer::refusal_hint() const {
  const bool has_some = !peer_->networks.empty();
  std::string networks;
  for (const Network &each : peer_->networks)
    networks.append(each.text()).append(", ");
  networks += refused_networks();
  std::string text = "If events are meant to go there, a superuser allows it by: ALTER SERVER " +
                     quote_identifier(sink_) + " OPTIONS (" + (has_some ? "SET" : "ADD") + " allow_networks '" +
                     networks + "')";
  if (text.size() <= shown_hint)
    return text;
  return "If events are meant to go there, a superuser adds " + refused_networks() +
         " to the server's option allow_networks";
}

long HttpTransfer::tunnel_refusal() const {
  long status = 0;
  curl_easy_getinfo(handle(), CURLINFO_HTTP_CONNECTCODE, &status);
  return requested_ || status < 300 ? 0 : status;
}

std::optional<TlsProblem> HttpTransfer::tls_problem(CURLcode code) const {
  if (header_bytes_ > 0)
    return std::nullopt;
  if (code != CURLE_OPERATION_TIMEDOUT)
    return tls_.explain(code, error_, peer_->client.is_given(), hung_up_);
  long tunnel = 0; /* until there is one, the proxy may be what is silent */
  curl_easy_getinfo(handle(), CURLINFO_HTTP_CONNECTCODE, &tunnel);
  return requested_ || (peer_->proxy.is_used() && tunnel == 0) ? std::nullopt : tls_.explain_silence(error_);
}

/* How far the peer has come, and what may be wrong with the url: libcurl's text does not say it. Empty if that text
 * is enough. */
std::string HttpTransfer::why_unanswered(CURLcode code) const {
  if (!requested_ || header_bytes_ > 0)
    return {};
  const std::string who = peer_->proxy.is_used() ? "the proxy, or the endpoint behind it," : "the endpoint";
  std::string why;
  if (code == CURLE_OPERATION_TIMEDOUT)
    why = who + " takes the connection and does not answer the request";
  else if (code == CURLE_UNSUPPORTED_PROTOCOL || code == CURLE_WEIRD_SERVER_REPLY)
    why = who + " does not speak HTTP on this port";
  else if (lost_ && socket_wanted_)
    why = who + " closed the connection without an answer";
  if (!why.empty() && !is_https(url_) && !peer_->history->answered)
    why += "; perhaps this port wants TLS, and the url must begin with https";
  return why;
}

/* The reason of a failure without a response, if TLS is not known to be the cause. */
static ob_reason reason_of(CURLcode code) {
  switch (code) {
  case CURLE_OPERATION_TIMEDOUT:
    return OB_REASON_TIMEOUT;
  case CURLE_COULDNT_RESOLVE_HOST:
  case CURLE_COULDNT_RESOLVE_PROXY:
    return OB_REASON_DNS;
  case CURLE_COULDNT_CONNECT:
  case CURLE_SEND_ERROR:
  case CURLE_RECV_ERROR:
  case CURLE_GOT_NOTHING:
  case CURLE_HTTP2:
  case CURLE_HTTP2_STREAM:
  case CURLE_OK:  // the connection ended within the head
    return OB_REASON_CONNECTION;
  case CURLE_SSL_CONNECT_ERROR:
  case CURLE_PEER_FAILED_VERIFICATION:
  case CURLE_SSL_CERTPROBLEM:
    return OB_REASON_TLS;
  default:
    return OB_REASON_OTHER;
  }
}

std::string HttpTransfer::field(const char *name, unsigned origin) const {
  std::string value;
  curl_header *line = nullptr;
  for (size_t i = 0; curl_easy_header(handle(), name, i, origin, -1, &line) == CURLHE_OK; i++)
    value.append(i == 0 ? "" : ", ").append(line->value);
  return value;
}

std::string HttpTransfer::header(const char *name) const {
  return field(name, CURLH_HEADER);
}

std::string HttpTransfer::trailer(const char *name) const {
  return field(name, CURLH_TRAILER);
}

int64_t HttpTransfer::retry_after_ms() const {
  return outbox::retry_after_ms(header("Retry-After"), header("Date"), time(nullptr));
}

long HttpTransfer::status() const {
  long status = 0;
  curl_easy_getinfo(handle(), CURLINFO_RESPONSE_CODE, &status);
  return status;
}

bool HttpTransfer::is_http2() const {
  long version = 0;
  curl_easy_getinfo(handle(), CURLINFO_HTTP_VERSION, &version);
  return version == CURL_HTTP_VERSION_2_0;
}

std::optional<HttpVerdict> HttpTransfer::no_answer(CURLcode code) const {
  HttpVerdict verdict;
  if (code != CURLE_OK && !requested_ && refusals_.empty() && (no_descriptor_ || descriptors_exhausted())) {
    verdict.outcome = Outcome::Returned;
    verdict.error = "not sent: this process has too many files open";
    verdict.no_descriptor = true;
    verdict.pause_ms = scarcity_pause_ms;
    return verdict;
  }
  if (refused(code)) {
    verdict.outcome = Outcome::SinkDown;  // a user must change a setting, so no event spends an attempt
    verdict.reason = OB_REASON_BLOCKED;
    verdict.error = refusal_fact() + ". " + refusal_hint();
    return verdict;
  }
  const long status = this->status(), no_tunnel = tunnel_refusal();
  if (peer_->proxy.is_used() && (status == 407 || no_tunnel)) {
    verdict.outcome = Outcome::SinkDown;
    bool wants_credentials = status == 407 || no_tunnel == 407 || no_tunnel == 401;
    verdict.reason = wants_credentials ? OB_REASON_AUTH : OB_REASON_CONNECTION;
    verdict.error =
        "HTTP " + std::to_string(no_tunnel ? no_tunnel : status) + " from the proxy " + peer_->proxy.url + ": ";
    verdict.error += wants_credentials
                         ? "it refuses proxy_user and proxy_password of the user mapping, or misses them"
                         : "it makes no connection to the url's host; look at its rules, and at option proxy";
  } else if (head_complete_) {
    return std::nullopt;
  } else if (auto tls = tls_problem(code)) {
    verdict.outcome = Outcome::SinkDown;
    verdict.reason = code == CURLE_OPERATION_TIMEDOUT ? OB_REASON_TIMEOUT : OB_REASON_TLS;
    verdict.error = tls->text() + " (libcurl: " + (error_[0] ? error_ : curl_easy_strerror(code)) + ")";
  } else {
    const bool is_free = lost_ && !socket_wanted_ && kept_ == KeptConnection::FREE;
    verdict.outcome = is_free ? Outcome::Deferred : requested_ ? Outcome::RetryBlameSink : Outcome::SinkDown;
    verdict.retry_after_ms = is_free ? 0 : -1;
    verdict.reason = lost_ ? OB_REASON_CONNECTION : reason_of(code);
    if (header_bytes_ > max_headers)
      verdict.error = "the answer's headers are too long";
    else if (code == CURLE_OK)
      verdict.error = "the connection ended within the head of an answer (HTTP " + std::to_string(status) + ")";
    else if (lost_ && !socket_wanted_)
      verdict.error = "a kept connection broke before an answer";
    else if (answer_lost(code))
      verdict.error = std::string("the server answered before it had the whole request, and libcurl ") +
                      curl_version_info(CURLVERSION_NOW)->version + " lost the answer";
    else if (std::string why = why_unanswered(code); !why.empty())
      verdict.error = why + " (libcurl: " + (error_[0] ? error_ : curl_easy_strerror(code)) + ")";
    else
      verdict.error = error_[0] ? error_ : curl_easy_strerror(code);
    if (requested_ && tls_.asked_for_client_certificate() && !peer_->client.is_given())
      verdict.error += ". The endpoint asked for a client certificate, and there is none: ssl_certificate_pem and "
                       "ssl_key_pem in PUBLIC's user mapping";
    long os_error = 0;
    if (code == CURLE_COULDNT_CONNECT && !requested_ &&
        curl_easy_getinfo(handle(), CURLINFO_OS_ERRNO, &os_error) == CURLE_OK && os_error != 0)
      verdict.error += std::string(" (") + std::generic_category().message(static_cast<int>(os_error)) + ")";
    if (!requested_ && code != CURLE_OK)
      verdict.error += other_refusals();
  }
  return verdict;
}

}  // namespace outbox
