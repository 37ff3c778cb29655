#include "delivery/sinks/webhook_probe.h"

#include <algorithm>
#include <new>

#include <curl/curl.h>
#include <poll.h>

#include "delivery/http_loop.h"
#include "delivery/sinks/webhook_transfer.h"

namespace outbox {
namespace {

struct Cleanup {
  void operator()(CURLM *multi) const { curl_multi_cleanup(multi); }
};

/* A connection, in a multi of its own: the loop of the sinks has connections and resolved names that would hide an
 * outage. */
class Trial {
public:
  Trial(WebhookTransfer &transfer, const Probe &probe) : transfer_(transfer), probe_(probe), multi_(open_multi()) {
    transfer_.prepare_connect_only(probe.left());
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

  /* With TLS 1.3 the handshake is over for us before the peer has seen our certificate: its refusal comes one way
   * later. */
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
  WebhookTransfer &transfer_;
  const Probe &probe_;
  std::unique_ptr<CURLM, Cleanup> multi_;
  bool connected_ = false; /* TCP, with TLS still to come */
};

double milliseconds(CURL *easy, CURLINFO time) {
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
    return "Correct the url, or see to the name service of the database server.";
  case CURLE_COULDNT_CONNECT:
  case CURLE_OPERATION_TIMEDOUT:
    return "Is the endpoint running, and is this its port? See to routes and firewalls between the database server "
           "and it.";
  default:
    return "";
  }
}

class WebhookProbe {
public:
  WebhookProbe(const std::shared_ptr<const WebhookConfig> &config, Probe &probe)
      : probe_(probe), tls_(config->is_https()), has_certificate_(!config->auth.certificate_pem.empty()),
        transfer_(config, probe.sink()), easy_(transfer_.handle()), trial_(transfer_, probe) {}

  void run() {
    CURLcode code = trial_.run();
    auto tls_problem = transfer_.tls_problem(code);
    double resolved = milliseconds(easy_, CURLINFO_NAMELOOKUP_TIME_T);
    double connected = milliseconds(easy_, CURLINFO_CONNECT_TIME_T);
    bool stood = trial_.connected() || connected > 0 || tls_problem;

    if (resolved > 0)
      probe_.passed("resolve", "the url's host has an address", {}, resolved);
    if (transfer_.refused(code))
      return probe_.failed("guard", transfer_.refusal_fact(), transfer_.refusal_hint());
    if (!stood)
      return probe_.failed(resolved == 0 ? "resolve" : "connect", transfer_.verdict(code).error, hint(code));
    probe_.passed("connect", peer(easy_) + " accepts the connection", {},
                  connected > 0 ? std::optional(connected - resolved) : std::nullopt);
    if (tls_problem)
      return probe_.failed("TLS", tls_problem->message, tls_problem->hint);
    if (code == CURLE_OPERATION_TIMEDOUT && tls_)
      return probe_.failed("TLS", "the endpoint takes the connection and does not answer the handshake", hint(code));
    if (code != CURLE_OK)
      return probe_.failed(tls_ ? "TLS" : "connect", transfer_.verdict(code).error, hint(code));
    if (tls_)
      tell_of_tls(connected);
  }

private:
  void tell_of_tls(double connected) {
    double ms = milliseconds(easy_, CURLINFO_APPCONNECT_TIME_T) - connected;
    if (!transfer_.asked_for_client_certificate())
      return probe_.passed("TLS", "the endpoint's certificate is accepted", {}, ms);
    constexpr double least = 250, most = 2000;
    auto patience = std::chrono::milliseconds(static_cast<int>(std::clamp(4 * connected, least, most)));
    CURLcode code = trial_.wait_for_alert(patience);
    if (auto refusal = transfer_.tls_problem(code))
      return probe_.failed("TLS", refusal->message, refusal->hint);
    if (code != CURLE_OK)
      return probe_.failed("TLS", "the endpoint hung up when it had got the client certificate",
                           "Look at ssl_certificate_pem in PUBLIC's user mapping, and at the endpoint's own log.");
    if (has_certificate_)
      return probe_.passed("TLS", "the endpoint's certificate is accepted, and the client's was shown", {}, ms);
    probe_.passed(
        "TLS",
        "the endpoint's certificate is accepted; it asks for a client certificate, and whether it insists on "
        "one shows with the first event",
        "There is none: ssl_certificate_pem and ssl_key_pem in PUBLIC's user mapping.", ms);
  }

  Probe &probe_;
  const bool tls_, has_certificate_;
  WebhookTransfer transfer_;
  CURL *const easy_;
  Trial trial_; /* after what it uses */
};

}  // namespace

void probe_webhook(const std::shared_ptr<const WebhookConfig> &config, Probe &probe) {
  init_libcurl();
  WebhookProbe(config, probe).run();
}

}  // namespace outbox
