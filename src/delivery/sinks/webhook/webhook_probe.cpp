/*
 * webhook_probe.cpp: uses the transfer of a delivery, so that DNS, proxy, TLS and network guard behave in the same
 * way. Without a test event the probe ends after the handshake and then waits 0.25 to 2 s for the peer's alert: in
 * TLS 1.3 the client's handshake is complete before the peer has checked the client's certificate.
 */
#include "delivery/sinks/webhook/webhook_probe.h"

#include <algorithm>
#include <new>
#include <stdexcept>
#include <string_view>

#include <curl/curl.h>
#include <openssl/rand.h>
#include <poll.h>

#include "delivery/http/http_loop.h"
#include "delivery/sinks/webhook/webhook_transfer.h"

namespace outbox {
namespace {

struct Cleanup {
  void operator()(CURLM *multi) const { curl_multi_cleanup(multi); }
};

/* A transfer on a multi handle of its own: the sinks' loop has open connections and resolved names that would hide an
 * outage. */
class Trial {
public:
  Trial(WebhookTransfer &transfer, const Probe &probe) : transfer_(transfer), probe_(probe), multi_(open_multi()) {
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
  WebhookTransfer &transfer_;
  const Probe &probe_;
  std::unique_ptr<CURLM, Cleanup> multi_;
  bool connected_ = false; /* TCP is connected; TLS may follow */
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
    return "Correct the url, or check the name resolution of the database server.";
  case CURLE_COULDNT_CONNECT:
  case CURLE_OPERATION_TIMEDOUT:
    return "Is the endpoint running, and is this its port? Check routes and firewalls between the database server "
           "and it.";
  default:
    return "";
  }
}

/* The next step after a response that is not a success. */
const char *answer_hint(long status) {
  switch (status) {
  case 401:
  case 403:
    return "It does not accept what the sink proves itself with: look at bearer_token, username and password, "
           "headers "
           "and secret in PUBLIC's user mapping, and whether the endpoint knows them.";
  case 404:
  case 405:
  case 410:
    return "No handler accepts events at this url: correct option url, above all its path, or option method.";
  case 407:
    return "Correct proxy_username and proxy_password in PUBLIC's user mapping.";
  case 429:
    return "The endpoint limits requests: set option rate_limit, or ask its operator for a higher limit.";
  default:
    return status >= 300 && status < 400 ? "Set option url to where the endpoint is now: redirects are not followed."
           : status >= 400 && status < 500 ? "The endpoint may accept only other types of events: see its log."
           : status >= 500                 ? "See the endpoint's log."
                                           : "";
  }
}

/* An event that is marked as a test and is never stored. */
struct TestEvent {
  static constexpr std::string_view type = "outbox.probe", aggregate = "outbox", key = "probe",
                                    payload = "{\"test\": true}";
  ob_event event{};

  TestEvent() {
    auto text = [](std::string_view of) { return ob_text{of.data(), of.size()}; };
    if (RAND_bytes(event.id, sizeof event.id) != 1)
      throw std::runtime_error("no random number for the test event's id");
    event.id[6] = static_cast<uint8_t>((event.id[6] & 0x0F) | 0x40); /* UUID version 4 */
    event.id[8] = static_cast<uint8_t>((event.id[8] & 0x3F) | 0x80);
    event.created_at_us =
        std::chrono::duration_cast<std::chrono::microseconds>(std::chrono::system_clock::now().time_since_epoch())
            .count();
    event.aggregate_type = text(aggregate);
    event.aggregate_id = event.key = text(key);
    event.event_type = text(type);
    event.payload = text(payload);
    event.attempt = 1;
  }
};

class WebhookProbe {
public:
  WebhookProbe(const std::shared_ptr<const WebhookConfig> &config, Probe &probe)
      : probe_(probe), tls_(config->is_https()), has_certificate_(!config->auth.certificate_pem.empty()),
        config_(config), transfer_(config, probe.sink()), easy_(transfer_.handle()),
        trial_(connecting(transfer_, probe), probe) {}

  void run() {
    if (connects() && probe_.sends())
      send();
  }

private:
  static WebhookTransfer &connecting(WebhookTransfer &transfer, const Probe &probe) {
    transfer.prepare_connect_only(probe.left());
    return transfer;
  }

  bool failed(const char *step, const std::string &message, const std::string &hint = {}) {
    probe_.failed(step, message, hint);
    return false;
  }

  bool connects() {
    CURLcode code = trial_.run();
    auto tls_problem = transfer_.tls_problem(code);
    double resolved = milliseconds(easy_, CURLINFO_NAMELOOKUP_TIME_T);
    double connected = milliseconds(easy_, CURLINFO_CONNECT_TIME_T);
    bool connected_once = trial_.connected() || connected > 0 || tls_problem;

    if (resolved > 0)
      probe_.passed("resolve", "the url's host has an address", {}, resolved);
    if (transfer_.refused(code))
      return failed("guard", transfer_.refusal_fact(), transfer_.refusal_hint());
    if (!connected_once)
      return failed(resolved == 0 ? "resolve" : "connect", transfer_.verdict(code).error, hint(code));
    probe_.passed("connect", peer(easy_) + " accepts the connection", {},
                  connected > 0 ? std::optional(connected - resolved) : std::nullopt);
    if (transfer_.tunnel_refusal())
      return failed("proxy", transfer_.verdict(code).error);
    if (tls_problem)
      return failed("TLS", tls_problem->message, tls_problem->hint);
    if (code == CURLE_OPERATION_TIMEDOUT && tls_)
      return failed("TLS", "the endpoint takes the connection and does not answer the handshake", hint(code));
    if (code != CURLE_OK)
      return failed(tls_ ? "TLS" : "connect", transfer_.verdict(code).error, hint(code));
    return !tls_ || report_tls(connected);
  }

  bool report_tls(double connected) {
    double ms = milliseconds(easy_, CURLINFO_APPCONNECT_TIME_T) - connected;
    if (!transfer_.asked_for_client_certificate()) {
      probe_.passed("TLS", "the endpoint's certificate is accepted", {}, ms);
      return true;
    }
    constexpr double least = 250, most = 2000;
    auto patience = std::chrono::milliseconds(static_cast<int>(std::clamp(4 * connected, least, most)));
    CURLcode code = trial_.wait_for_alert(patience);
    if (auto refusal = transfer_.tls_problem(code))
      return failed("TLS", refusal->message, refusal->hint);
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

  /* Sends the test event like any event, with one header more. */
  void send() {
    TestEvent test;
    try {
      config_->check_event(test.event);
    } catch (const BadInput &bad) {
      probe_.failed("request", "a test event cannot be sent: " + std::string(bad.what()),
                    "The url or a header is made of values that a test event does not have.");
      return;
    }
    WebhookRequest request = config_->render(test.event);
    request.headers.emplace_back("Outbox-Probe", "true");
    WebhookTransfer transfer(config_, probe_.sink());
    transfer.prepare(std::move(request));
    Verdict verdict = transfer.verdict(Trial(transfer, probe_).run());
    long status = 0;
    curl_easy_getinfo(transfer.handle(), CURLINFO_RESPONSE_CODE, &status);
    if (verdict.outcome == Outcome::Sent)
      probe_.passed("request", "the endpoint took a test event of type " + std::string(TestEvent::type) + ": HTTP " +
                                   std::to_string(status));
    else
      probe_.failed("request", verdict.gone ? "HTTP 410" : verdict.error, answer_hint(status));
  }

  Probe &probe_;
  const bool tls_, has_certificate_;
  const std::shared_ptr<const WebhookConfig> config_;
  WebhookTransfer transfer_;
  CURL *const easy_;
  Trial trial_; /* after the members that it uses */
};

}  // namespace

void probe_webhook(const std::shared_ptr<const WebhookConfig> &config, Probe &probe) {
  init_libcurl();
  WebhookProbe(config, probe).run();
}

}  // namespace outbox
