#include "delivery/sinks/webhook_probe.h"

#include <new>

#include <curl/curl.h>

#include "delivery/http_loop.h"
#include "delivery/sinks/webhook_transfer.h"

namespace outbox {
namespace {

struct Cleanup {
  void operator()(CURLM *multi) const { curl_multi_cleanup(multi); }
};

struct Outcome {
  CURLcode code = CURLE_OPERATION_TIMEDOUT;
  bool connected = false;
};

/* In a multi of its own: the loop of the sinks has connections and resolved names that would hide an outage. */
Outcome run(const WebhookTransfer &transfer, const Probe &probe) {
  std::unique_ptr<CURLM, Cleanup> multi(curl_multi_init());
  if (!multi || curl_multi_add_handle(multi.get(), transfer.handle()) != CURLM_OK)
    throw std::bad_alloc();
  Outcome outcome;
  for (int running = 1; running > 0 && !probe.over();) {
    if (curl_multi_perform(multi.get(), &running) != CURLM_OK)
      break;
    if (running > 0) {
      outcome.connected |= transfer.connected();
      curl_multi_poll(multi.get(), nullptr, 0, static_cast<int>(Probe::slice.count()), nullptr);
    }
  }
  int left = 0;
  while (CURLMsg *message = curl_multi_info_read(multi.get(), &left))
    if (message->msg == CURLMSG_DONE)
      outcome.code = message->data.result;
  curl_multi_remove_handle(multi.get(), transfer.handle());
  return outcome;
}

/* Of the handshake, whose failure shows that the connection stood. */
bool is_of_tls(CURLcode code) {
  return code == CURLE_SSL_CONNECT_ERROR || code == CURLE_PEER_FAILED_VERIFICATION || code == CURLE_SSL_CERTPROBLEM ||
         code == CURLE_SSL_CIPHER || code == CURLE_SSL_ISSUER_ERROR || code == CURLE_SSL_INVALIDCERTSTATUS;
}

double milliseconds(CURL *easy, CURLINFO time) {
  curl_off_t microseconds = 0;
  curl_easy_getinfo(easy, time, &microseconds);
  return static_cast<double>(microseconds) / 1000;
}

const char *hint(CURLcode code) {
  switch (code) {
  case CURLE_COULDNT_RESOLVE_HOST:
    return "Correct the url, or see to the name service of the database server.";
  case CURLE_COULDNT_CONNECT:
  case CURLE_OPERATION_TIMEDOUT:
    return "Is the endpoint running, and is this its port? See to routes and firewalls between the database server "
           "and "
           "it.";
  case CURLE_PEER_FAILED_VERIFICATION:
    return "Renew the endpoint's certificate, or give the authority that signed it: option ca_pem of the server.";
  case CURLE_SSL_CONNECT_ERROR:
    return "Does this port speak TLS? See the url.";
  default:
    return "";
  }
}

}  // namespace

void probe_webhook(std::shared_ptr<const WebhookConfig> config, Probe &probe) {
  init_libcurl();
  bool tls = config->is_https();
  WebhookTransfer transfer(std::move(config), probe.sink());
  CURL *easy = transfer.handle();
  transfer.prepare_connect_only(probe.left());
  auto [code, stood] = run(transfer, probe);

  double resolved = milliseconds(easy, CURLINFO_NAMELOOKUP_TIME_T);
  double connected = milliseconds(easy, CURLINFO_CONNECT_TIME_T);
  stood = stood || connected > 0 || is_of_tls(code);

  if (resolved > 0)
    probe.passed("resolve", "the url's host has an address", {}, resolved);
  if (stood)
    probe.passed("connect", "the endpoint accepts the connection", {},
                 connected > 0 ? std::optional(connected - resolved) : std::nullopt);
  if (code != CURLE_OK)
    probe.failed(resolved == 0 ? "resolve" : stood ? "TLS" : "connect", transfer.verdict(code).error, hint(code));
  else if (tls)
    probe.passed("TLS", "the endpoint's certificate is accepted", {},
                 milliseconds(easy, CURLINFO_APPCONNECT_TIME_T) - connected);
}

}  // namespace outbox
