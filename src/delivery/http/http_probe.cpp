/*
 * http_probe.cpp: uses the transfer of a delivery, so that DNS, proxy, TLS and network guard behave in the same way.
 * The probe ends after the handshake and then waits 0.25 to 2 s for the peer's alert: in TLS 1.3 the client's
 * handshake is complete before the peer has checked the client's certificate.
 */
#include "delivery/http/http_probe.h"

#include <algorithm>
#include <new>
#include <string_view>

#include <curl/curl.h>
#include <poll.h>

#include "delivery/http/http_loop.h"

namespace outbox {

namespace {

double time_ms(CURL *easy, CURLINFO time) {
  curl_off_t microseconds = 0;
  curl_easy_getinfo(easy, time, &microseconds);
  return static_cast<double>(microseconds) / 1000;
}

/* "192.0.2.1 port 443" */
std::string peer(CURL *easy) {
  char *address = nullptr;
  long port = 0;
  curl_easy_getinfo(easy, CURLINFO_PRIMARY_IP, &address);
  curl_easy_getinfo(easy, CURLINFO_PRIMARY_PORT, &port);
  return address && *address ? std::string(address) + " port " + std::to_string(port) : "the endpoint";
}

const char *hint(CURLcode code) {
  switch (code) {
  case CURLE_COULDNT_RESOLVE_HOST:
    return "Correct the url, or check the name resolution of the database server.";
  case CURLE_COULDNT_CONNECT:
  case CURLE_OPERATION_TIMEDOUT:
    return "Is the endpoint running, and is this its port? Check routes and firewalls between the database server "
           "and it.";
  default:
    return "";
  }
}

}  // namespace

/* A transfer on a multi handle of its own: the sinks' loop has open connections and resolved names that would hide an
 * outage. */
class HttpProbe::Trial {
public:
  Trial(HttpTransfer &transfer, const Probe &probe) : transfer_(transfer), probe_(probe), multi_(open_multi()) {
    if (!multi_ || curl_multi_add_handle(multi_.get(), transfer_.handle()) != CURLM_OK)
      throw std::bad_alloc();
  }
  ~Trial() { curl_multi_remove_handle(multi_.get(), transfer_.handle()); }
  Trial(const Trial &) = delete;

  CURLcode run() {
    for (int running = 1; running > 0 && !probe_.over();) {
      if (curl_multi_perform(multi_.get(), &running) != CURLM_OK)
        break;
      if (running > 0) {
        connected_ |= transfer_.connected();
        curl_multi_poll(multi_.get(), nullptr, 0, static_cast<int>(Probe::slice.count()), nullptr);
      }
    }
    CURLcode code = CURLE_OPERATION_TIMEDOUT;
    int left = 0;
    while (CURLMsg *message = curl_multi_info_read(multi_.get(), &left))
      if (message->msg == CURLMSG_DONE)
        code = message->data.result;
    return code;
  }

  /* In TLS 1.3 the client's handshake is complete before the peer has checked the client's certificate: a refusal
   * arrives one network delay later. */
  CURLcode wait_for_alert(std::chrono::milliseconds limit) {
    auto end = Probe::Clock::now() + std::min(limit, probe_.left());
    curl_socket_t socket = CURL_SOCKET_BAD;
    curl_easy_getinfo(transfer_.handle(), CURLINFO_ACTIVESOCKET, &socket);
    char byte;
    size_t n = 0;
    CURLcode code = CURLE_AGAIN;
    while (code == CURLE_AGAIN && Probe::Clock::now() < end && !probe_.over()) {
      pollfd ready{socket, POLLIN, 0};
      poll(&ready, 1, static_cast<int>(Probe::slice.count()));
      code = curl_easy_recv(transfer_.handle(), &byte, 1, &n);
    }
    return code == CURLE_AGAIN ? CURLE_OK : code;
  }

  bool connected() const { return connected_; }

private:
  struct FreeMulti {
    void operator()(CURLM *multi) const { curl_multi_cleanup(multi); }
  };

  HttpTransfer &transfer_;
  const Probe &probe_;
  std::unique_ptr<CURLM, FreeMulti> multi_;
  bool connected_ = false; /* TCP is connected; TLS may follow */
};

HttpProbe::HttpProbe(const std::shared_ptr<const HttpPeer> &peer, const std::string &url, Probe &probe)
    : probe_(probe), tls_(same_name(std::string_view(url).substr(0, 6), "https:")),
      has_certificate_(peer->client.is_given()), transfer_(peer, probe.sink(), url), trial_([&] {
        transfer_.prepare_connect_only(probe.left());
        return std::make_unique<Trial>(transfer_, probe);
      }()) {}

HttpProbe::~HttpProbe() = default;

bool HttpProbe::failed(const char *step, const std::string &message, const std::string &hint) {
  probe_.failed(step, message, hint);
  return false;
}

bool HttpProbe::connects() {
  CURLcode code = trial_->run();
  auto tls_problem = transfer_.tls_problem(code);
  double resolved = time_ms(handle(), CURLINFO_NAMELOOKUP_TIME_T);
  double connected = time_ms(handle(), CURLINFO_CONNECT_TIME_T);
  auto why = [&] {
    auto failure = transfer_.no_answer(code);
    return failure ? failure->error : std::string();
  };
  bool connected_once = trial_->connected() || connected > 0 || tls_problem;

  if (resolved > 0)
    probe_.passed("resolve", "the url's host has an address", {}, resolved);
  if (transfer_.refused(code))
    return failed("guard", transfer_.refusal_fact(), transfer_.refusal_hint());
  if (!connected_once)
    return failed(resolved == 0 ? "resolve" : "connect", why(), hint(code));
  probe_.passed("connect", peer(handle()) + " accepts the connection", {},
                connected > 0 ? std::optional(connected - resolved) : std::nullopt);
  if (transfer_.tunnel_refusal())
    return failed("proxy", why());
  if (tls_problem)
    return failed("TLS", tls_problem->message, tls_problem->hint);
  if (code != CURLE_OK)
    return failed(tls_ ? "TLS" : "connect", why(), hint(code));
  return !tls_ || report_tls(connected);
}

bool HttpProbe::report_tls(double connected) {
  double ms = time_ms(handle(), CURLINFO_APPCONNECT_TIME_T) - connected;
  if (!transfer_.asked_for_client_certificate()) {
    probe_.passed("TLS", "the endpoint's certificate is accepted", {}, ms);
    return true;
  }
  constexpr double least = 250, most = 2000;
  auto deadline = std::chrono::milliseconds(static_cast<int>(std::clamp(4 * connected, least, most)));
  CURLcode code = trial_->wait_for_alert(deadline);
  if (auto refusal = transfer_.tls_problem(code))
    return failed("TLS", refusal->message, refusal->hint);
  if (code != CURLE_OK && !has_certificate_)
    return failed("TLS", "the endpoint asked for a client certificate, and hung up without one",
                  "Set ssl_certificate_pem and ssl_key_pem in PUBLIC's user mapping.");
  if (code != CURLE_OK)
    return failed("TLS", "the endpoint hung up when it had got the client certificate",
                  "Look at ssl_certificate_pem in PUBLIC's user mapping, and at the endpoint's own log.");
  if (has_certificate_)
    probe_.passed("TLS", "the endpoint's certificate is accepted, and the client's was shown", {}, ms);
  else
    probe_.passed(
        "TLS",
        "the endpoint's certificate is accepted; it asks for a client certificate, and whether it insists on "
        "one shows with the first event",
        "There is none: ssl_certificate_pem and ssl_key_pem in PUBLIC's user mapping.", ms);
  return true;
}

CURLcode HttpProbe::run(HttpTransfer &transfer, const Probe &probe) {
  const CURLcode code = Trial(transfer, probe).run();
  transfer.ended(code);
  return code;
}

}  // namespace outbox
